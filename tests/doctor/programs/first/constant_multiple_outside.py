# rule: made-once
# carrier: scaled
# fix: compute `scaled` again
import torch

w = torch.randn(3, requires_grad=True)
optimizer = torch.optim.SGD([w], 0.1)
scaled = 2 * w  # MADE
for _ in range(2):
    optimizer.zero_grad()
    scaled.sum().backward()  # USED FREED
    optimizer.step()
