import torch
from torch import nn

bce = nn.BCEWithLogitsLoss()
G = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
D = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
g_opt = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999))
d_opt = torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.999))
for _ in range(4):
    real, noise = torch.randn(6, 3), torch.randn(6, 2)
    D.zero_grad()
    err_real = bce(D(real).view(-1), torch.ones(6))
    err_real.backward()
    fake = G(noise)
    err_fake = bce(D(fake.detach()).view(-1), torch.zeros(6))
    err_fake.backward()
    d_opt.step()
    G.zero_grad()
    err_g = bce(D(fake).view(-1), torch.ones(6))
    err_g.backward()
    g_opt.step()
