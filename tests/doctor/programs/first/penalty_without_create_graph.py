# rule: freed-by-grad
# carrier: out
# fix: create_graph=True
import torch
from torch import nn

net = nn.Sequential(nn.Linear(2, 4), nn.Softplus(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    x = torch.randn(5, 2, requires_grad=True)
    out = net(x)  # MADE
    (slope,) = torch.autograd.grad(out.sum(), x)  # FREED
    loss = out.pow(2).mean() + (slope.norm(dim=1) - 1).pow(2).mean()  # USED
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
