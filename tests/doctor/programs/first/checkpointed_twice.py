# rule: shared-in-pass
# carrier: code
# fix: add the losses
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

block = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
x = torch.randn(5, 3)
code = checkpoint(block, x, use_reentrant=False)  # MADE
first, second = code.pow(2).mean(), code.exp().mean()  # USED
first.backward()  # FREED
second.backward()
