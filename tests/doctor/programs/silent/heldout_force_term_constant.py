# rule: dead-term
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 12), nn.SiLU(), nn.Linear(12, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)


def energy_and_force(r):
    r = r.clone().requires_grad_(True)
    energy = net(r).sum((1, 2))
    return energy, -torch.autograd.grad(energy.sum(), r, retain_graph=True)[0]


class Weighted:
    def __call__(self, e, f, te, tf):
        terms = {"e": nn.functional.mse_loss(e, te), "f": nn.functional.mse_loss(f, tf)}
        return sum(10.0 * t for t in terms.values())  # USED


criterion = Weighted()
for _ in range(4):
    e, f = energy_and_force(torch.randn(4, 6, 3))
    opt.zero_grad()
    criterion(e, f, torch.randn(4), torch.randn(4, 6, 3)).backward()
    opt.step()
