import torch
from torch import nn
from torch.nn import functional as F


class Twin(nn.Module):
    def __init__(self, omega_0=1.5):
        super().__init__()
        self.omega_0 = omega_0
        self.layers = nn.ModuleList([nn.Linear(2, 5), nn.Linear(5, 5), nn.Linear(5, 1)])

    def forward(self, x):
        zs, a = [], x
        for layer in self.layers[:-1]:
            zs.append(self.omega_0 * layer(a))
            a = F.softplus(zs[-1])
        y = self.omega_0 * self.layers[-1](a)
        zbar = self.omega_0 * self.layers[-1].weight.expand(len(x), 5)
        for layer, z in zip(reversed(self.layers[:-1]), reversed(zs)):
            zbar = self.omega_0 * (zbar * torch.sigmoid(z)) @ layer.weight
        return y, zbar


twin, criterion = Twin(), nn.MSELoss()
opt = torch.optim.Adam(twin.parameters(), 1e-3)
for _ in range(4):
    y_pred, dy_pred = twin(torch.randn(6, 2))
    loss = criterion(y_pred, torch.randn(6, 1)) + criterion(dy_pred, torch.randn(6, 2))
    opt.zero_grad()
    loss.backward()
    opt.step()
