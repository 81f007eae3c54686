# rule: carried-state
# carrier: best
# fix: best.detach()
import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
best = torch.tensor(float("inf"))
for _ in range(3):
    loss = model(torch.ones(5, 3)).pow(2).mean()  # MADE
    objective = loss + torch.relu(loss - best) if torch.isfinite(best) else loss  # USED
    optimizer.zero_grad()
    objective.backward()  # FREED
    optimizer.step()
    best = loss
