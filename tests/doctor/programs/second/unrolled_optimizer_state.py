# rule: carried-state
# carrier: momentum
# fix: .detach()
import torch

rate = torch.tensor(0.1, requires_grad=True)
meta = torch.optim.Adam([rate], lr=1e-2)
x = torch.ones(3)
momentum = torch.zeros(3)
for _ in range(3):
    with torch.enable_grad():
        momentum = 0.9 * momentum + rate * x.cos()  # MADE USED
        position = x - rate * momentum
        outer = position.pow(2).sum()
    meta.zero_grad()
    outer.backward()  # FREED
    meta.step()
