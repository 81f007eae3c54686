import torch
from torch import nn

net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.LBFGS(net.parameters(), max_iter=4)
x, y = torch.randn(16, 2), torch.randn(16, 1)


def closure():
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return loss


for _ in range(4):
    opt.step(closure)
