# rule: freed-by-grad | shared-in-pass | same-root-twice
# carrier: loss | output | logits
# fix: create_graph=True | retain_graph=True | delete one
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    logits = net(torch.randn(5, 4))
    loss = nn.functional.cross_entropy(logits, torch.randint(0, 3, (5,)))
    curvature = [g.pow(2) for g in torch.autograd.grad(loss, list(net.parameters()))]  # FREED
    optimizer.zero_grad()
    loss.backward()
    for p, c in zip(net.parameters(), curvature):
        p.grad /= c.sqrt() + 1
    optimizer.step()
