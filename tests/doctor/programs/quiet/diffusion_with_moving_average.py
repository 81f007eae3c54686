import copy

import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 16), nn.GELU(), nn.Linear(16, 2))
ema = copy.deepcopy(net).eval().requires_grad_(False)
opt = torch.optim.Adam(net.parameters(), 1e-3)
alphas = torch.linspace(0.99, 0.1, 10)
log = []
for step in range(7):
    net.train()
    x0, t = torch.randn(9, 2), torch.randint(0, 10, (9,))
    noise, a = torch.randn_like(x0), alphas[t].unsqueeze(1)
    xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
    loss = ((net(torch.cat([xt, t[:, None] / 10], 1)) - noise) ** 2).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    for e, p in zip(ema.parameters(), net.parameters()):
        e.lerp_(p.data, 0.01)
    log.append(float(loss))
