# rule: row-by-row
# carrier: outputs
# fix: sum the losses
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
inputs = torch.randn(6, 3)
outputs = net(inputs)  # MADE
for row in outputs:
    optimizer.zero_grad()
    row.pow(2).sum().backward()  # FREED
    optimizer.step()
