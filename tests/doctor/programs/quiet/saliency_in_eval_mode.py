import torch
from torch import nn

net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
maps = []
for _ in range(6):
    x = torch.randn(4, 5, requires_grad=True)
    score = net(x).max(1).values.sum()
    score.backward()
    maps.append(x.grad.abs())
torch.cat(maps)
