import copy

import torch
from torch import nn

online = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
target = copy.deepcopy(online).requires_grad_(False)
opt = torch.optim.SGD(online.parameters(), 0.1)
for _ in range(5):
    x = torch.randn(8, 4)
    loss = (online(x) - target(x + 0.1)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for t, o in zip(target.parameters(), online.parameters()):
            t.mul_(0.99).add_(o, alpha=0.01)
