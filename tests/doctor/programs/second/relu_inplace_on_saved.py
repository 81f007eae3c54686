# rule: changed-in-place
# carrier: gate | h
# fix: out-of-place
import torch
from torch import nn

up, down = nn.Linear(3, 5), nn.Linear(5, 3)


def block(x):
    gate = torch.sigmoid(up(x))
    residual = down(gate)
    gate.mul_(2.0)  # FREED
    return residual + down(gate)


block(torch.randn(4, 3)).sum().backward()
