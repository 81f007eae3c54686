# rule: loss-accumulator
# carrier: aux
# fix: from zero
import torch
from torch import nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(3, 2)
        self.experts = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)])
        self.aux = 0.0

    def forward(self, x):
        g = torch.softmax(self.gate(x), -1)
        self.aux = self.aux + g.mean(0).pow(2).sum()  # USED MADE
        return sum(g[:, i : i + 1] * e(x) for i, e in enumerate(self.experts))


net = Gated()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    y = net(torch.randn(4, 3))
    opt.zero_grad()
    (y.pow(2).mean() + 0.1 * net.aux).backward()  # FREED
    opt.step()
