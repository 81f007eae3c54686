# rule: carried-state
# carrier: weight
# fix: .detach()
import torch
from torch import nn


class Evolving(nn.Module):
    def __init__(self):
        super().__init__()
        self.evolve = nn.GRUCell(4, 4)
        self.weight = torch.eye(4)

    def forward(self, x):
        self.weight = self.evolve(self.weight)  # USED MADE
        return x @ self.weight


layer = Evolving()
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    layer(torch.randn(5, 4)).pow(2).mean().backward()  # FREED
    optimizer.step()
