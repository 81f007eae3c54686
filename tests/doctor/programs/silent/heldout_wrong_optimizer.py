# rule: idle-step
import torch
from torch import nn

old = nn.Linear(3, 1)
opt = torch.optim.Adam(old.parameters(), 1e-3)
net = nn.Linear(3, 1)
for _ in range(4):
    opt.zero_grad()
    net(torch.randn(5, 3)).pow(2).mean().backward()
    opt.step()  # USED
