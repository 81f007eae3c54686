# rule: gradient-graph
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.randn(4, 3)).pow(2).mean().backward(create_graph=True)
    opt.step()
    for p in net.parameters():
        p.grad.data.zero_()
for p in net.parameters():
    p.grad = None
