# rule: made-once
# carrier: start
# fix: compute `start` again
import torch
from torch import nn

cell = nn.RNNCell(2, 3)
seed_state = nn.Parameter(torch.randn(1, 3))
optimizer = torch.optim.SGD([seed_state, *cell.parameters()], 0.1)
start = torch.tanh(seed_state).expand(4, 3)  # MADE
for _ in range(2):
    h = start
    for _ in range(3):
        h = cell(torch.randn(4, 2), h)
    optimizer.zero_grad()
    h.pow(2).mean().backward()  # FREED
    optimizer.step()
