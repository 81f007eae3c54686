import torch
from torch import nn


class DifferentialNet(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.pre = []

    def forward(self, a):
        for layer in self.layers[:-1]:
            self.pre += [layer(a)]  # MADE
            a = nn.functional.silu(self.pre[-1])
        return self.layers[-1](a)

    def derivative(self):
        hidden = self.layers[:-1]
        zbar = self.layers[-1].weight
        for layer, z in zip(reversed(hidden), self.pre[:2][::-1]):
            s = torch.sigmoid(z)
            zbar = (zbar * (s + z * s * (1 - s))) @ layer.weight  # USED
        return zbar
