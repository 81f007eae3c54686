# rule: dead-term
import torch
from torch import nn

gate, expert = nn.Linear(3, 2), nn.Linear(3, 2)
opt = torch.optim.SGD([*gate.parameters(), *expert.parameters()], 0.1)


def balance(weights):
    return weights.mean(0).pow(2).sum().detach()  # MADE


for _ in range(3):
    x = torch.randn(5, 3)
    weights = torch.softmax(gate(x), -1)
    loss = (weights * expert(x)).pow(2).mean()
    loss = loss + 0.5 * balance(weights)  # USED
    opt.zero_grad()
    loss.backward()
    opt.step()
