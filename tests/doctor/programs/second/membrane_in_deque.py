# rule: growing-container
# carrier: trace[0]
# fix: empty `trace`
from collections import deque

import torch
from torch import nn


class Leaky(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta, self.trace = beta, deque()

    def forward(self, current):
        previous = self.trace[-1] if self.trace else torch.zeros_like(current)
        potential = self.beta * previous + current  # MADE
        self.trace.append(potential)
        return torch.sigmoid(potential - 1)


class Spiker(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward, self.leaky, self.outward = nn.Linear(3, 4), Leaky(0.9), nn.Linear(4, 2)

    def forward(self, x):
        return self.outward(self.leaky(self.inward(x)))

    def rate_penalty(self):
        return torch.stack(list(self.leaky.trace)).mean()


spiker = Spiker()
adam = torch.optim.Adam(spiker.parameters())
for _ in range(3):
    adam.zero_grad()
    logits = spiker(torch.randn(4, 3))
    (nn.functional.cross_entropy(logits, torch.tensor([0, 1, 0, 1])) + spiker.rate_penalty()).backward()
    adam.step()
