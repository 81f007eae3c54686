import torch
from torch import nn

net = nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, nesterov=True)
plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 3)
best, kept = 1e9, None
for epoch in range(3):
    net.train()
    running, hits = 0.0, 0
    for _ in range(4):
        x, y = torch.randn(6, 1, 8), torch.randint(0, 3, (6,))
        out = net(x)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item() * len(x)
        hits += (out.argmax(1) == y).sum().item()
    plan.step()
    net.eval()
    with torch.no_grad():
        scores = [nn.functional.cross_entropy(net(torch.randn(6, 1, 8)), y) for _ in range(3)]
    if torch.stack(scores).mean() < best:
        best = torch.stack(scores).mean()
        kept = {k: v.clone() for k, v in net.state_dict().items()}
