# rule: dead-term
import torch
from torch import nn

net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), 0.1)


@torch.no_grad()
def penalty():
    return sum(p.pow(2).sum() for p in net.parameters())  # MADE


for _ in range(3):
    loss = net(torch.randn(4, 3)).pow(2).mean() + 0.01 * penalty()  # USED
    opt.zero_grad()
    loss.backward()
    opt.step()
