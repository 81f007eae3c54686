# rule: carried-state
# carrier: membrane
# fix: zeros_like
import torch
from torch import nn


class Spiking(nn.Module):
    def __init__(self):
        super().__init__()
        self.synapse = nn.Linear(3, 3)
        self.register_buffer("membrane", torch.zeros(5, 3))

    def reset(self):
        self.membrane.zero_()  # USED

    def forward(self, x):
        self.membrane = 0.5 * self.membrane + self.synapse(x)  # MADE
        return torch.sigmoid(self.membrane)


neurons = Spiking()
optimizer = torch.optim.SGD(neurons.parameters(), 0.1)
for _ in range(3):
    neurons.reset()
    optimizer.zero_grad()
    loss = neurons(torch.randn(5, 3)).mean()
    loss.backward()  # FREED
    optimizer.step()
