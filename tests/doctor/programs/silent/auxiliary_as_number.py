# rule: dead-term
import torch
from torch import nn

gate, expert = nn.Linear(3, 2), nn.Linear(3, 2)
opt = torch.optim.SGD([*gate.parameters(), *expert.parameters()], 0.1)
for _ in range(3):
    x = torch.randn(5, 3)
    weights = torch.softmax(gate(x), -1)
    aux = weights.mean(0).pow(2).sum()
    loss = (weights * expert(x)).pow(2).mean() + 0.1 * aux.item()  # MADE USED
    opt.zero_grad()
    loss.backward()
    opt.step()
