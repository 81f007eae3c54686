import torch
from torch import nn

net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, 2))
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for _ in range(6):
    x, y = torch.randn(12, 8), torch.randint(0, 2, (12,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if torch.isfinite(norm):
        opt.step()
