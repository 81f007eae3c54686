# rule: graph-growth
# carrier: total
import torch
from torch import nn


def fit(epochs):
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    total = 0.0
    for _ in range(epochs):
        loss = net(torch.randn(16, 3)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss
    return total / epochs


fit(6)
