# rule: no-graph
# carrier: loss
# fix: remove the `.detach()`
import torch
from torch import nn

model = nn.Linear(3, 1)
prediction = model(torch.randn(4, 3)).detach()  # MADE
loss = (prediction - 1).pow(2).mean()
loss.backward()
