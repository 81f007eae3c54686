# rule: graph-growth
# carrier: outputs['train']
import torch
from torch import nn


class Loop:
    def __init__(self):
        self.net = nn.Linear(4, 1)
        self.outputs = {"train": [], "valid": []}
        self.opt = torch.optim.SGD(self.net.parameters(), 0.1)

    def step(self):
        y = self.net(torch.randn(8, 4)).sigmoid()
        self.opt.zero_grad()
        y.pow(2).mean().backward()
        self.opt.step()
        self.outputs["train"].append({"prediction": y})


loop = Loop()
for _ in range(7):
    loop.step()
