import torch
from torch import nn

net = torch.compile(
    nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), backend="aot_eager"
)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    opt.zero_grad()
    net(torch.randn(5, 3)).pow(2).mean().backward()
    opt.step()
