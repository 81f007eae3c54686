import random
from collections import deque

import torch
from torch import nn

critic = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
opt = torch.optim.Adam(critic.parameters(), 1e-3)
memory = deque(maxlen=50)
for _ in range(8):
    state = torch.randn(3)
    with torch.no_grad():
        memory.append((state, critic(state)))
    batch = random.sample(list(memory), min(4, len(memory)))
    states, values = (torch.stack(part) for part in zip(*batch))
    loss = (critic(states) - values - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
