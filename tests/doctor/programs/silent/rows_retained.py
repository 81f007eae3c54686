# rule: rows-retained
# carrier: outputs
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
inputs = torch.randn(6, 3, requires_grad=True)
outputs = net(inputs)
for j in range(6):
    outputs[j].pow(2).sum().backward(retain_graph=True)  # USED
