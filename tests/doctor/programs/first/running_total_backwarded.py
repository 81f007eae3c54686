# rule: loss-accumulator
# carrier: total
# fix: start `total` from zero
import torch
from torch import nn

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
total = 0.0
for _ in range(3):
    hidden = model(torch.randn(5, 3)).tanh()
    total = total + hidden.pow(2).mean()  # USED MADE
    optimizer.zero_grad()
    total.backward()  # FREED
    optimizer.step()
