import torch
from torch import nn

actor, critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 1e-3)
for _ in range(4):
    s = torch.randn(6, 4)
    policy = torch.distributions.Categorical(logits=actor(s))
    action, value = policy.sample(), critic(s).squeeze(-1)
    advantage = torch.randn(6) - value
    loss = -(policy.log_prob(action) * advantage.detach()).mean() + advantage.pow(2).mean()
    loss = loss - 0.01 * policy.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
