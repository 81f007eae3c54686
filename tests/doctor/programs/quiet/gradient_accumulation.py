import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.AdamW(net.parameters(), 0.01)
total = 0.0
for step in range(8):
    loss = net(torch.randn(4, 3)).pow(2).mean() / 4
    loss.backward()
    total += loss.item()
    if step % 4 == 3:
        opt.step()
        opt.zero_grad()
print(f"{total:.2f}" is not None)
