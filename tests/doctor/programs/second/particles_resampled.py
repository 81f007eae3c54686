# rule: carried-state
# carrier: particles | self.particles
# fix: .detach()
import torch
from torch import nn


class Filter:
    def __init__(self, count):
        self.motion, self.sensor = nn.Linear(2, 2), nn.Linear(2, 1)
        self.particles = torch.randn(count, 2)
        self.optimizer = torch.optim.SGD(
            [*self.motion.parameters(), *self.sensor.parameters()], lr=0.05
        )

    def observe(self, value):
        moved = self.particles + torch.tanh(self.motion(self.particles))
        weight = torch.softmax(-(self.sensor(moved) - value).pow(2).squeeze(-1), 0)
        estimate = (weight.unsqueeze(-1) * moved).sum(0)
        loss = (estimate - value).pow(2).sum()
        self.optimizer.zero_grad()
        loss.backward()  # FREED
        self.optimizer.step()
        keep = torch.multinomial(weight.detach(), len(weight), replacement=True)
        self.particles = moved[keep]  # MADE


tracker = Filter(6)
for value in (0.1, 0.2, 0.3):
    tracker.observe(torch.tensor([value]))
