# rule: carried-state
# carrier: hidden
# fix: hidden = hidden.detach()
# says: drops the copy
import torch
from torch import nn

cell = nn.RNNCell(2, 4)
optimizer = torch.optim.SGD(cell.parameters(), 0.1)
hidden = torch.zeros(3, 4)
for _ in range(3):
    hidden.detach()
    hidden = cell(torch.randn(3, 2), hidden)  # MADE USED
    optimizer.zero_grad()
    hidden.square().mean().backward()  # FREED
    optimizer.step()
