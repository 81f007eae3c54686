# rule: changed-in-place
# carrier: a
# fix: out-of-place
import torch
from torch import nn

layer, last = nn.Linear(3, 4), nn.Linear(4, 1)
a = torch.sigmoid(layer(torch.randn(5, 3)))
y = last(a)
a += 1.0  # FREED
y.mean().backward()
