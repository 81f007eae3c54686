import torch
from torch import nn

backbone = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
backbone.requires_grad_(False).eval()
head = nn.Linear(8, 2)
opt = torch.optim.SGD(head.parameters(), 0.1)
for _ in range(4):
    loss = nn.functional.cross_entropy(head(backbone(torch.randn(6, 4))), torch.randint(0, 2, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
