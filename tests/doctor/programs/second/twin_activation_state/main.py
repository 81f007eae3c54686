# rule: carried-state | growing-container
# carrier: pre[0] | pre[1]
# fix: .detach() | empty
import torch
from torch import nn
from twin_activation_state_net import DifferentialNet

net = DifferentialNet([1, 5, 5, 1])
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
mse = nn.MSELoss()
for epoch in range(2):
    for x, y, dy in [(torch.randn(4, 1), torch.randn(4, 1), torch.randn(4, 1))]:
        optimizer.zero_grad()
        loss = mse(net(x), y) + mse(net.derivative(), dy)
        loss.backward()  # FREED
        optimizer.step()
