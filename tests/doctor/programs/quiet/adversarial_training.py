import torch
from torch import nn
from torch.nn import functional as F

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    noise = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        (g,) = torch.autograd.grad(F.cross_entropy(net(x + noise), y), noise)
        noise = (noise + 0.1 * g.sign()).clamp(-0.3, 0.3).detach().requires_grad_()
    opt.zero_grad()
    F.cross_entropy(net(x + noise), y).backward()
    opt.step()
