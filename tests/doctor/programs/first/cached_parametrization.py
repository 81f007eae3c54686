# rule: made-once
# carrier: parametrize._cache | weight | _cache[...]
# fix: again in every pass
import torch
from torch import nn
from torch.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu().exp() + w.triu(1).T


linear = nn.Linear(3, 3)
parametrize.register_parametrization(linear, "weight", Symmetric())
opt = torch.optim.SGD(linear.parameters(), 0.1)
with parametrize.cached():
    for _ in range(2):
        loss = (linear(torch.randn(4, 3)) @ linear.weight).pow(2).mean()
        opt.zero_grad()
        loss.backward()  # FREED
        opt.step()
