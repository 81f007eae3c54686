# rule: evaluation-graph
# carrier: scores
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)


def evaluate(batches):
    net.eval()
    scores = []
    for x in batches:
        scores.append(net(x))  # MADE
    net.train()
    return float(torch.cat(scores).mean().detach())


for _ in range(2):
    for _ in range(3):
        opt.zero_grad()
        net(torch.randn(4, 3)).pow(2).mean().backward()
        opt.step()
    evaluate([torch.randn(4, 3) for _ in range(5)])
