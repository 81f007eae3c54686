# rule: carried-state
# carrier: centre
# fix: .detach()
import torch
from torch import nn


class Centring(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(3))

    def forward(self, x):
        self.centre = 0.9 * self.centre + 0.1 * x.mean(0)  # USED MADE
        return x - self.centre


model = nn.Sequential(nn.Linear(3, 3), Centring(), nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(6, 3)).pow(2).mean().backward()  # FREED
    optimizer.step()
