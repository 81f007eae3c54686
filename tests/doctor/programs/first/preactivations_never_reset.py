# rule: growing-container
# carrier: zs[0]
# fix: empty `zs`
import torch
from torch import nn


class TwinNet(nn.Module):
    """The differential network whose forward appends to a list made in the constructor."""

    def __init__(self, omega_0=30.0):
        super().__init__()
        self.omega_0 = omega_0
        self.layers = nn.ModuleList([nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 1)])
        self.zs = []

    def forward(self, x):
        a = x
        for layer in self.layers[:-1]:
            z = self.omega_0 * layer(a)  # MADE
            self.zs.append(z)
            a = torch.tanh(z)
        return self.layers[-1](a)

    def backprop(self):
        zbar = torch.ones(5, 1) @ self.layers[-1].weight
        for layer, z in zip(reversed(self.layers[:-1]), reversed(self.zs)):
            zbar = (zbar * (1 - torch.tanh(z) ** 2)) @ layer.weight
        return zbar


model = TwinNet()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
criterion = nn.MSELoss()
for _ in range(3):
    x, y, dy = torch.randn(5, 2), torch.randn(5, 1), torch.randn(5, 2)
    optimizer.zero_grad()
    y_pred = model(x)
    dy_pred = sum(model.zs[i].mean() for i in range(len(model.zs))) + model.backprop()  # USED
    loss = criterion(y_pred, y) + criterion(dy_pred, dy)
    loss.backward()  # FREED
    optimizer.step()
