# rule: row-by-row
# carrier: scores
# fix: pullback.infer
import torch
from torch import nn

scorer = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Tanh(), nn.Linear(8, 1))
signals = torch.randn(7, 1, 6, requires_grad=True)
scores = scorer(signals).squeeze(1)  # MADE
remaining = list(range(7))
while remaining:
    pick = max(remaining, key=lambda i: float(scores[i].detach()))
    remaining.remove(pick)
    (scores[pick] - 1.0).abs().backward()  # FREED
    saliency = signals.grad[pick]
