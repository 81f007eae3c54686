# rule: changed-in-place
# carrier: prototypes
# fix: new tensor
import torch
from torch import nn


class Prototypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.register_buffer("prototypes", torch.randn(2, 4))

    def forward(self, x, y):
        z = self.embed(x)
        distance = z @ self.prototypes.T
        for c in range(2):
            self.prototypes[c].mul_(0.9).add_(0.1 * z[y == c].mean(0).detach())  # FREED
        return nn.functional.cross_entropy(distance, y)


net = Prototypes()
net(torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])).backward()
