# rule: data-in-graph
import torch
from torch import nn

first, last = nn.Linear(2, 4), nn.Linear(4, 1)
opt = torch.optim.SGD([*first.parameters(), *last.parameters()], 0.1)
for _ in range(4):
    z = first(torch.randn(5, 2))
    y = last(torch.tanh(z))
    dy = (last.weight.data * (1 - torch.tanh(z) ** 2)) @ first.weight.data  # MADE
    loss = y.pow(2).mean() + (dy - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
