import torch
from torch import nn


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.zs = []

    def forward(self, x):
        z1 = self.first(x)
        z2 = self.middle(torch.tanh(z1))
        self.zs.extend([z1, z2])
        y = self.last(torch.tanh(z2))
        zbar = self.last.weight.expand(5, 4)
        for layer, z in zip((self.middle, self.first), reversed(self.zs[:2])):
            zbar = (zbar * (1 - torch.tanh(z) ** 2)) @ layer.weight
        return y, zbar
