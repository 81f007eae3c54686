# rule: dead-term
import torch
from torch import nn

first, last = nn.Linear(2, 4), nn.Linear(4, 1)
opt = torch.optim.SGD([*first.parameters(), *last.parameters()], 0.1)


def twin(x):
    z = first(x)
    y = last(torch.tanh(z))
    zbar = (last.weight * (1 - torch.tanh(z) ** 2)) @ first.weight
    return y, zbar.detach()  # MADE


for _ in range(4):
    y, dy = twin(torch.randn(5, 2))
    loss = y.pow(2).mean() + (dy - 1).pow(2).mean()  # USED
    opt.zero_grad()
    loss.backward()
    opt.step()
