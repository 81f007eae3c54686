import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

net = nn.Linear(3, 1)
average = AveragedModel(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(5):
    opt.zero_grad()
    net(torch.randn(4, 3)).pow(2).mean().backward()
    opt.step()
    average.update_parameters(net)
