# rule: loss-accumulator
# carrier: loss
# fix: start `loss` from zero
import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def climb(radius=0.05):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(radius * p.grad)


for _ in range(2):
    x = torch.randn(5, 3)
    loss = torch.zeros(())
    for part in x.split(3):
        loss = loss + model(part).pow(2).mean()  # MADE
    loss.backward()  # FREED
    climb()
    for part in x.split(3):
        loss = loss + model(part).pow(2).mean()  # USED
    loss.backward()
    optimizer.step()
