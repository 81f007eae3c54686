# rule: shared-in-pass
# carrier: code
# fix: add the losses
import torch
from torch import nn

encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
heads = nn.ModuleList(nn.Linear(4, 1) for _ in range(3))
code = encoder(torch.randn(5, 3))  # MADE
losses = [head(code).pow(2).mean() for head in heads]  # USED
for loss in losses:
    loss.backward()  # FREED
