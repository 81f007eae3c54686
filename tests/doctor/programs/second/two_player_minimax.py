# rule: shared-in-pass
# carrier: payoff | strategy_a | strategy_b | value
# fix: add both losses | add the losses | detach
import torch

a = torch.randn(3, requires_grad=True)
b = torch.randn(3, requires_grad=True)
opt_a, opt_b = torch.optim.SGD([a], lr=0.1), torch.optim.SGD([b], lr=0.1)
matrix = torch.randn(3, 3)
for _ in range(2):
    value = a.softmax(0) @ matrix @ b.softmax(0)  # MADE
    loss_a = value.square()
    loss_b = -value.exp()  # USED
    opt_a.zero_grad()
    loss_a.backward()  # FREED
    opt_b.zero_grad()
    loss_b.backward()
    opt_a.step()
    opt_b.step()
