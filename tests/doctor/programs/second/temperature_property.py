# rule: made-once
# carrier: temperature
# fix: again in every pass
from functools import cached_property

import torch
from torch import nn


class Calibrator(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_temperature = nn.Parameter(torch.zeros(()))

    @cached_property
    def temperature(self):
        return self.log_temperature.exp()

    def forward(self, logits):
        return logits / self.temperature


calibrator = Calibrator()
optimizer = torch.optim.SGD(calibrator.parameters(), lr=0.1)
logits, labels = torch.randn(6, 3), torch.randint(0, 3, (6,))
while True:
    loss = nn.functional.cross_entropy(calibrator(logits), labels)
    optimizer.zero_grad()
    loss.backward()  # FREED
    optimizer.step()
