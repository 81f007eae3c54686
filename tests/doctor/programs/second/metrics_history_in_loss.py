# rule: growing-container
# carrier: history['reg'][0] | history["reg"][0]
# fix: empty
from collections import defaultdict

import torch
from torch import nn


class Recorder:
    def __init__(self):
        self.history = defaultdict(list)

    def record(self, **values):
        for name, value in values.items():
            self.history[name].append(value)


def objective(net, x, recorder):
    out = net(x)
    recorder.record(mse=out.pow(2).mean().item(), reg=net[0].weight.pow(2).sum())  # MADE
    return out.pow(2).mean() + 1e-3 * sum(recorder.history["reg"])  # USED


recorder = Recorder()
net = nn.Sequential(nn.Linear(3, 3), nn.Softplus(), nn.Linear(3, 1))
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for _ in range(3):
    optimizer.zero_grad()
    objective(net, torch.randn(4, 3), recorder).backward()  # FREED
    optimizer.step()
