# rule: graph-growth
# carrier: shadow
import torch
from torch import nn

net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), 0.1)
shadow = {n: p.clone() for n, p in net.named_parameters()}
for _ in range(6):
    opt.zero_grad()
    net(torch.randn(4, 3)).pow(2).mean().backward()
    opt.step()
    for n, p in net.named_parameters():
        shadow[n] = 0.9 * shadow[n] + 0.1 * p.clone()
