import torch
from torch import nn

q = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.SGD(q.parameters(), 0.05)
for _ in range(5):
    s, following = torch.randn(3), torch.randn(3)
    target = torch.randn(()) + 0.9 * q(following).max().detach()
    loss = (q(s)[0] - target) ** 2
    opt.zero_grad()
    loss.backward()
    opt.step()
