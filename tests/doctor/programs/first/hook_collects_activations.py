# rule: growing-container
# carrier: collected[0]
# fix: empty `collected`
import torch
from torch import nn

collected = []


def keep(module, inputs, output):
    collected.append(output)


backbone = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
backbone[1].register_forward_hook(keep)
sgd = torch.optim.SGD(backbone.parameters(), 0.01)


def one_step():
    sgd.zero_grad()
    prediction = backbone(torch.randn(4, 3))  # MADE
    sparsity = torch.stack(collected).abs().mean()  # USED
    (prediction.square().mean() + sparsity).backward()  # FREED
    sgd.step()


for _ in range(3):
    one_step()
