import torch
from torch import nn

trunk, a, b = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)
opt = torch.optim.SGD([*trunk.parameters(), *a.parameters(), *b.parameters()], 0.1)
for _ in range(4):
    h = trunk(torch.randn(5, 3)).tanh()
    first, second = a(h).pow(2).mean(), b(h).pow(2).mean()
    opt.zero_grad()
    first.backward(retain_graph=True)
    second.backward()
    opt.step()
