# rule: carried-state
# carrier: h
# fix: h = h.detach()
import torch
from torch import nn


def train(batches):
    cell = nn.GRUCell(3, 5)
    readout = nn.Linear(5, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *readout.parameters()], 0.1)
    h = torch.zeros(4, 5)
    for _ in range(batches):
        h = cell(torch.randn(4, 3), h)  # MADE USED
        loss = readout(h).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()  # FREED
        optimizer.step()


train(3)
