import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
for _ in range(3):
    x = torch.randn(3, requires_grad=True)
    y = net(x)
    rows = [torch.autograd.grad(y[k], x, retain_graph=True)[0] for k in range(4)]
    torch.stack(rows).norm().item()
