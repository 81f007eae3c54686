# rule: dead-term
import torch
from torch import nn

net = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), 0.01)
for _ in range(4):
    x = torch.randn(16, 2, requires_grad=True)
    y = net(x)
    (dy,) = torch.autograd.grad(y.sum(), x, retain_graph=True)  # MADE
    loss = y.pow(2).mean() + (dy - 1).pow(2).mean()  # USED
    opt.zero_grad()
    loss.backward()
    opt.step()
