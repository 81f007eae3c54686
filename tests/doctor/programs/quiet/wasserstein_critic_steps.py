import torch
from torch import nn

G = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
C = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
g_opt = torch.optim.RMSprop(G.parameters(), 1e-3)
c_opt = torch.optim.RMSprop(C.parameters(), 1e-3)


def penalty(real, fake):
    t = torch.rand(len(real), 1)
    mixed = (t * real + (1 - t) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(C(mixed).sum(), mixed, create_graph=True)
    return (slope.norm(2, dim=1) - 1).pow(2).mean()


for _ in range(3):
    for _ in range(4):
        real = torch.randn(5, 3)
        with torch.no_grad():
            fake = G(torch.randn(5, 2))
        loss = C(fake).mean() - C(real).mean() + 10 * penalty(real, fake)
        c_opt.zero_grad()
        loss.backward()
        c_opt.step()
    g_opt.zero_grad()
    (-C(G(torch.randn(5, 2))).mean()).backward()
    g_opt.step()
