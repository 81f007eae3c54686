import torch
from torch import nn

net = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), 0.01)
for _ in range(4):
    x = torch.randn(6, 2, requires_grad=True)
    y = net(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    loss = y.pow(2).mean() + (g - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
