import torch
from torch import nn


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(3, 4), nn.ModuleList(nn.Linear(3, 2) for _ in range(4))
        self.aux = None

    def forward(self, x):
        p = torch.softmax(self.gate(x), -1)
        top = p.argmax(-1)
        self.aux = (p.mean(0) * nn.functional.one_hot(top, 4).float().mean(0)).sum()
        y = torch.zeros(len(x), 2)
        for k, expert in enumerate(self.experts):
            chosen = top == k
            if chosen.any():
                y[chosen] = expert(x[chosen]) * p[chosen, k].unsqueeze(1)
        return y


net = Router()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    loss = net(torch.randn(9, 3)).pow(2).mean() + 0.01 * net.aux
    opt.zero_grad()
    loss.backward()
    opt.step()
