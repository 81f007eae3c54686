# rule: freed-by-grad | made-once
# carrier: scores
# fix: create_graph=True | again in every pass
import torch
from torch import nn

backbone, head = nn.Sequential(nn.Linear(3, 5), nn.Tanh()), nn.Parameter(torch.zeros(5))
meta = torch.optim.SGD([*backbone.parameters(), head], lr=0.1)
for _ in range(2):
    support = backbone(torch.randn(6, 3))
    scores = torch.tanh(support @ head)  # MADE
    inner = (scores - 1).pow(2).mean()
    (g,) = torch.autograd.grad(inner, head)  # FREED
    adapted = head - 0.1 * g
    outer = (scores + support @ adapted - 1).pow(2).mean()  # USED
    meta.zero_grad()
    outer.backward()
    meta.step()
