import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
params = list(net.parameters())
for _ in range(4):
    loss = net(torch.randn(7, 3)).pow(2).mean()
    grads = torch.autograd.grad(loss, params, create_graph=True)
    v = [torch.randn_like(p) for p in params]
    hv = torch.autograd.grad(grads, params, grad_outputs=v)
    with torch.no_grad():
        for p, g, h in zip(params, grads, hv):
            p -= 0.01 * g / (h.abs() + 1)
