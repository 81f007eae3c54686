# rule: carried-state
# carrier: states['a']
# fix: .detach()
import torch
from torch import nn

cell = nn.RNNCell(2, 3)
states = {key: torch.zeros(1, 3) for key in "abc"}
for step in range(4):
    key = "ab"[step % 2]
    states[key] = cell(torch.randn(1, 2), states[key])  # MADE USED
    loss = states[key].pow(2).sum()
    loss.backward()  # FREED
