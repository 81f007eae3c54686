# rule: graph-growth
# carrier: history
import torch
from torch import nn


class Logger:
    def __init__(self):
        self.history = []

    def log(self, value):
        self.history.append(value)


logger = Logger()
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(6):
    loss = net(torch.randn(16, 3)).tanh().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    logger.log(loss)
