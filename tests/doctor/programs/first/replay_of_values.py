# rule: growing-container
# carrier: memory[0][1]
# fix: empty `memory`
import torch
from torch import nn

critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(critic.parameters(), 0.05)
memory = []
for episode in range(4):
    state = torch.randn(4)
    memory.append((episode, critic(state)))  # MADE
    loss = sum((value - 1.0).pow(2).sum() for _, value in memory)  # USED
    optimizer.zero_grad()
    loss.backward()  # FREED
    optimizer.step()
