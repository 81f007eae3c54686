"""Networks with independent rows; a new kind is one more entry and inherits the tests."""

from dataclasses import dataclass

import torch
from torch import nn


class Attention(nn.Module):
    """A small pre-norm transformer over patches."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        h = self.embed(x)
        n = self.norm(h)
        h = h + self.attend(n, n, n, need_weights=False)[0]
        return self.head(h.mean(1))


class Recurrent(nn.Module):
    """A GRU that starts from zeros."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.gru(x)[0][:, -1])


def cnn(width=6):
    return nn.Sequential(
        nn.Conv2d(2, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1),
        nn.GroupNorm(2, width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 3),
    )


def mlp():
    return nn.Sequential(
        nn.Linear(5, 16), nn.Softplus(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)
    )


@dataclass(frozen=True)
class Case:
    name: str
    make: object
    row: tuple[int, ...]

    def __str__(self):
        return self.name

    def build(self, n, dtype=torch.float64, seed=0):
        """The network in eval mode, and n rows."""
        torch.manual_seed(seed)
        net = self.make().to(dtype).eval()
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2)
        return net, torch.randn(n, *self.row, dtype=dtype)


CASES = [
    Case("mlp", mlp, (5,)),
    Case("cnn", cnn, (2, 8, 8)),
    Case("attention", Attention, (4, 6)),
    Case("recurrent", Recurrent, (7, 4)),
]
