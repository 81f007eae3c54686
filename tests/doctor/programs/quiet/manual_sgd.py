import torch

w, b = torch.randn(3, requires_grad=True), torch.zeros(1, requires_grad=True)
history = []
for _ in range(5):
    loss = (torch.randn(8, 3) @ w + b - 1).pow(2).mean()
    gw, gb = torch.autograd.grad(loss, (w, b))
    with torch.no_grad():
        w -= 0.1 * gw
        b -= 0.1 * gb
    history.append(loss.detach())
