# rule: same-root-twice
# carrier: loss
# fix: delete one
import torch
from helper_backwards_too_losses import regression_loss
from torch import nn

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    optimizer.zero_grad()
    loss = regression_loss(model(torch.randn(5, 3)), torch.randn(5, 1))
    loss.backward()
    optimizer.step()
