# rule: update-through-data
import torch
from torch import nn

net = nn.Linear(3, 1)
meta = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    saved = [p.detach().clone() for p in net.parameters()]
    inner = net(torch.randn(5, 3)).pow(2).mean()
    gradients = torch.autograd.grad(inner, list(net.parameters()), create_graph=True)
    for p, g in zip(net.parameters(), gradients):
        p.data.sub_(0.1 * g)  # USED
    meta.zero_grad()
    net(torch.randn(5, 3)).pow(2).mean().backward()
    for p, s in zip(net.parameters(), saved):
        p.data.copy_(s)
    meta.step()
