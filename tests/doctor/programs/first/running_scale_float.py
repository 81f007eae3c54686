# rule: carried-state
# carrier: scale
# fix: .detach()
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = 0.0

    def forward(self, x):
        y = self.linear(x)
        self.scale = 0.9 * self.scale + 0.1 * y.abs().mean()  # USED MADE
        return y / (self.scale + 1e-3)


def main():
    net = Scaled()
    opt = torch.optim.SGD(net.parameters(), 0.01)
    for _ in range(4):
        opt.zero_grad()
        net(torch.randn(5, 2)).pow(4).mean().backward()  # FREED
        opt.step()


main()
