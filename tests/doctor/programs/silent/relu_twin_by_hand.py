# rule: blind-activation
import torch
from torch import nn


class ReluTwin(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        z1 = self.a(x)
        z2 = self.b(torch.relu(z1))
        y = self.c(torch.relu(z2))
        zbar = self.c.weight.expand(len(x), 6)
        zbar = (zbar * (z2 > 0).float()) @ self.b.weight
        zbar = (zbar * (z1 > 0).float()) @ self.a.weight
        return y, zbar


net = ReluTwin()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    y, dy = net(torch.randn(8, 2))
    loss = y.pow(2).mean() + (dy - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
