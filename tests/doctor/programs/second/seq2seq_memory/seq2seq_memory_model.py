import torch
from torch import nn


class MemoryReader(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.key, self.value, self.query = (nn.Linear(width, width) for _ in range(3))
        self.memory = torch.zeros(width, width)

    def forward(self, segment):
        read = torch.tanh(self.query(segment)) @ self.memory
        self.memory = self.memory + torch.tanh(self.key(segment)).T @ self.value(segment)  # MADE
        return segment + read
