import torch
from torch import nn

net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
for _ in range(6):
    loss = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    schedule.step(loss)
