# rule: made-once
# carrier: features
# fix: compute `features` again
import torch
from torch import nn

embedding = nn.Embedding(10, 4)
head = nn.Linear(4, 1)
optimizer = torch.optim.SGD([*embedding.parameters(), *head.parameters()], 0.1)
features = torch.tanh(embedding(torch.arange(10)))  # MADE
for _ in range(3):
    loss = head(features).pow(2).mean()  # USED
    optimizer.zero_grad()
    loss.backward()  # FREED
    optimizer.step()
