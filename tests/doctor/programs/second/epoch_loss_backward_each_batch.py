# rule: loss-accumulator
# carrier: epoch_loss | running
# fix: from zero
import torch
from torch import nn


def run_epoch(net, batches, optimizer):
    running = torch.zeros(1)
    for x, y in batches:
        prediction = net(x)
        running += nn.functional.mse_loss(prediction, y)  # USED
        optimizer.zero_grad()
        running.backward()  # FREED
        optimizer.step()
    return running


net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
run_epoch(
    net,
    [(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(3)],
    torch.optim.SGD(net.parameters(), lr=0.01),
)
