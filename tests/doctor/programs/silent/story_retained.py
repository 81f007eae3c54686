# rule: graph-growth
# carrier: zs
import torch
from torch import nn


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 1)
        self.zs = []

    def forward(self, x):
        z = self.first(x)
        self.zs.append(z)
        return self.last(torch.tanh(z))


twin = Twin()
for _ in range(4):
    y = twin(torch.randn(5, 2))
    loss = y.pow(2).mean() + sum(z.pow(2).mean() for z in twin.zs)
    twin.zero_grad()
    loss.backward(retain_graph=True)
