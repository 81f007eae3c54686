# rule: no-graph
# carrier: loss
# fix: differentiable
import torch
from torch import nn

classifier = nn.Linear(3, 2)
scores = classifier(torch.randn(6, 3))
wrong = (scores[:, 0] > scores[:, 1]).float()  # MADE
loss = wrong.mean()
loss.backward()
