import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        a, b = (b, a) if self.flip else (a, b)
        s, t = self.net(a).chunk(2, 1)
        b = b * s.tanh().exp() + t
        return (torch.cat([b, a], 1) if self.flip else torch.cat([a, b], 1)), s.tanh().sum(1)


flow = nn.ModuleList(Coupling(i % 2 == 1) for i in range(4))
opt = torch.optim.Adam(flow.parameters())
best = float("inf")
for _ in range(6):
    z, total = torch.randn(10, 2), 0.0
    for layer in flow:
        z, logdet = layer(z)
        total = total + logdet
    nll = (0.5 * z.pow(2).sum(1) - total).mean()
    opt.zero_grad()
    nll.backward()
    opt.step()
    best = min(best, nll.item())
