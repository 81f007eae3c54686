# rule: blind-activation
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 16), nn.LeakyReLU(0.1), nn.Linear(16, 16), nn.LeakyReLU(0.1), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(4):
    x = torch.randn(32, 3, requires_grad=True)
    labels, slopes = torch.randn(32, 1), torch.randn(32, 3)
    y = net(x)
    g = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]
    loss = nn.functional.mse_loss(y, labels) + nn.functional.mse_loss(g, slopes)
    opt.zero_grad()
    loss.backward()
    opt.step()
