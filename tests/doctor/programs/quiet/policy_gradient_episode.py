import torch
from torch import nn

policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.Adam(policy.parameters(), 1e-2)


class Memory:
    def __init__(self):
        self.logps, self.rewards = [], []

    def clear(self):
        del self.logps[:]
        del self.rewards[:]


memory = Memory()
for episode in range(5):
    state = torch.randn(4)
    for _ in range(6):
        dist = torch.distributions.Categorical(logits=policy(state))
        action = dist.sample()
        memory.logps.append(dist.log_prob(action))
        memory.rewards.append(float(action))
        state = torch.randn(4)
    returns = torch.tensor(memory.rewards).flip(0).cumsum(0).flip(0)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = -(torch.stack(memory.logps) * returns).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    memory.clear()
