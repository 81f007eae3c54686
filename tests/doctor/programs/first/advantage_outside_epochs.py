# rule: made-once
# carrier: advantage
# fix: detach
import torch
from torch import nn

actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*actor.parameters(), *critic.parameters()], 0.05)


def update(observations, epochs=3):
    advantage = 1.0 - critic(observations).squeeze(-1)  # MADE
    for _ in range(epochs):
        logp = torch.log_softmax(actor(observations), -1)[:, 0]
        loss = -(logp * advantage).mean()  # USED
        optimizer.zero_grad()
        loss.backward()  # FREED
        optimizer.step()


update(torch.randn(6, 4))
