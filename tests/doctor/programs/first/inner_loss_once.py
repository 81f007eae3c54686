# rule: made-once
# carrier: inner_loss
# fix: compute `inner_loss` again
import torch

theta = torch.randn(3, requires_grad=True)
x, y = torch.randn(8, 3), torch.randn(8)
fast = theta
inner_loss = (x @ theta - y).pow(2).mean()  # MADE
for _ in range(2):
    (g,) = torch.autograd.grad(inner_loss, theta)  # FREED
    fast = fast - 0.1 * g
