# rule: step-between
# carrier: zs[0]
# fix: before the first optimizer step
import torch
from torch import nn
from twin_retained_net import Twin

twin = Twin()
optimizer = torch.optim.SGD(twin.parameters(), 0.01)
for _ in range(3):
    optimizer.zero_grad()
    y, dy = twin(torch.randn(5, 2))
    (nn.functional.mse_loss(y, torch.zeros(5, 1)) + dy.pow(2).mean()).backward(retain_graph=True)
    optimizer.step()  # FREED
