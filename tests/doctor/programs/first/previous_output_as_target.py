# rule: carried-state
# carrier: previous
# fix: previous.detach()
import torch
from torch import nn

smoother = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
optimizer = torch.optim.SGD(smoother.parameters(), 0.1)
previous = torch.zeros(4, 2)
for _ in range(3):
    current = smoother(torch.randn(4, 3))  # MADE
    loss = current.pow(2).mean() + (current - previous).pow(2).mean()  # USED
    optimizer.zero_grad()
    loss.backward()  # FREED
    optimizer.step()
    previous = current
