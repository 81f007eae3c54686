# rule: made-once
# carrier: weight
# fix: again in every pass
import torch
from torch import nn


class Positive(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.randn(1, 3))
        self.weight = nn.functional.softplus(self.raw)  # MADE

    def forward(self, x):
        return nn.functional.linear(x, self.weight)  # USED


def loop(net):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        opt.zero_grad()
        net(torch.randn(4, 3)).pow(2).mean().backward()  # FREED
        opt.step()


loop(Positive())
