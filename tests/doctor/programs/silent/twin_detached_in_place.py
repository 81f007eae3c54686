# rule: detached-in-place
# says: detach_()
import torch
from torch import nn


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 1)])

    def forward(self, x):
        self.zs = []
        for layer in self.layers[:-1]:
            self.zs.append(layer(x))
            x = nn.functional.softplus(self.zs[-1])
        return self.layers[-1](x)

    def backprop(self, n):
        zbar = torch.ones(n, 1) @ self.layers[-1].weight
        for layer, z in zip(reversed(self.layers[:-1]), reversed(self.zs)):
            zbar = (zbar * torch.sigmoid(z)) @ layer.weight
            zbar.detach_()  # MADE
        return zbar * torch.ones((), requires_grad=False) + 0 * self.layers[0].weight.sum()


twin = Twin()
opt = torch.optim.SGD(twin.parameters(), 0.1)
for _ in range(4):
    y, dy = twin(torch.randn(5, 2)), twin.backprop(5)
    loss = y.pow(2).mean() + (dy - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
