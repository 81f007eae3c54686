import copy

import torch
from torch import nn

policy = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
target = copy.deepcopy(policy)
opt = torch.optim.AdamW(policy.parameters(), 1e-3)
for step in range(6):
    s, a = torch.randn(5, 4), torch.randint(0, 2, (5, 1))
    q = policy(s).gather(1, a)
    with torch.no_grad():
        best = target(torch.randn(5, 4)).max(1).values
    expected = 0.9 * best + torch.randn(5)
    loss = nn.functional.smooth_l1_loss(q, expected.unsqueeze(1))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    opt.step()
    weights = target.state_dict()
    for key, value in policy.state_dict().items():
        weights[key] = 0.005 * value + 0.995 * weights[key]
    target.load_state_dict(weights)
