import torch
from torch import nn

body, head = nn.Linear(3, 4), nn.Linear(4, 1)
slow = torch.optim.SGD(body.parameters(), 0.01)
fast = torch.optim.Adam(head.parameters(), 0.01)
for _ in range(4):
    loss = head(body(torch.randn(5, 3)).relu()).pow(2).mean()
    slow.zero_grad()
    fast.zero_grad()
    loss.backward()
    slow.step()
    fast.step()
