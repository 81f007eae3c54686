import torch
from torch import nn

net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(4):
    t = torch.rand(10, 1, requires_grad=True)
    u = net(t)
    (du,) = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)
    (ddu,) = torch.autograd.grad(du, t, torch.ones_like(du), create_graph=True)
    residual = (ddu + u).pow(2).mean()
    boundary = (net(torch.zeros(1, 1)) - 1).pow(2).mean()
    opt.zero_grad()
    (residual + boundary).backward()
    opt.step()
