# rule: no-graph
# carrier: loss
# fix: outside `torch.no_grad()`
import torch
from torch import nn

model = nn.Linear(3, 1)
with torch.no_grad():
    prediction = model(torch.randn(4, 3))  # MADE
loss = (prediction - 1).pow(2).mean()
loss.backward()
