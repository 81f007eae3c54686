import torch
from torch import nn

cell = nn.GRUCell(2, 3)
opt = torch.optim.SGD(cell.parameters(), 0.1)
h = torch.zeros(4, 3)
for _ in range(5):
    h.detach_()
    for _ in range(3):
        h = cell(torch.randn(4, 2), h)
    opt.zero_grad()
    h.pow(2).mean().backward()
    opt.step()
