# rule: evaluation-graph
# carrier: total
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)


def validate(loader):
    net.eval()
    total = 0
    for x, y in loader:
        total += nn.functional.cross_entropy(net(x), y)
    return (total / len(loader)).item()


data = [(torch.randn(5, 4), torch.randint(0, 2, (5,))) for _ in range(6)]
for epoch in range(2):
    net.train()
    for x, y in data:
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
    validate(data)
