# rule: shared-in-pass
# carrier: shared
# fix: add the losses
import torch
from torch import nn

trunk, left, right = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 2)
params = [*trunk.parameters(), *left.parameters(), *right.parameters()]
optimizer = torch.optim.SGD(params, 0.1)
for _ in range(2):
    shared = torch.tanh(trunk(torch.randn(5, 3)))  # MADE
    first = left(shared).pow(2).mean()
    second = right(shared).pow(2).mean()  # USED
    optimizer.zero_grad()
    first.backward(); second.backward()  # FREED
    optimizer.step()
