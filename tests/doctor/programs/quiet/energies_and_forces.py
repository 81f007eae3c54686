import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 12), nn.SiLU(), nn.Linear(12, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)
mse = nn.MSELoss()
for _ in range(5):
    r = torch.randn(4, 6, 3, requires_grad=True)
    energy = net(r).sum((1, 2))
    force = -torch.autograd.grad(energy.sum(), r, create_graph=True)[0]
    loss = mse(energy, torch.randn(4)) + 10 * mse(force, torch.randn(4, 6, 3))
    opt.zero_grad()
    loss.backward()
    opt.step()
    mae = (force - 0).abs().mean().item()
