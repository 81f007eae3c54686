import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    x = torch.randn(5, 3)
    net(x).pow(2).mean().backward()
    saved = [p.data.clone() for p in net.parameters()]
    for p in net.parameters():
        p.data.add_(0.05 * p.grad)
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    for p, s in zip(net.parameters(), saved):
        p.data = s
    opt.step()
    opt.zero_grad()
