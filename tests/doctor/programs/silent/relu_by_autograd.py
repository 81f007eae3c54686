# rule: blind-activation
import torch
from torch import nn

net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), 0.01)
for _ in range(4):
    x = torch.randn(16, 2, requires_grad=True)
    y = net(x)
    (dy,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    value_loss, slope_loss = y.pow(2).mean(), (dy - 1).pow(2).mean()
    opt.zero_grad()
    (value_loss + 2.0 * slope_loss).backward()
    opt.step()
