# rule: stale-value
# carrier: offset
import torch

w = torch.randn(3, requires_grad=True)
opt = torch.optim.SGD([w], 0.1)
offset = w.sum() + 1
for _ in range(4):
    opt.zero_grad()
    (offset * 2 + 0.0).backward(retain_graph=False)
    opt.step()
