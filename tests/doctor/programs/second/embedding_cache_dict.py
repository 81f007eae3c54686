# rule: made-once
# carrier: cache[3] | cache[...] | cache
# fix: again in every pass
import torch
from torch import nn


class Lookup:
    def __init__(self):
        self.table, self.head, self.cache = nn.Embedding(5, 3), nn.Linear(3, 1), {}

    def vector(self, i):
        if i not in self.cache:
            self.cache[i] = torch.tanh(self.table(torch.tensor(i)))  # MADE
        return self.cache[i]


lookup = Lookup()
optimizer = torch.optim.SGD([*lookup.table.parameters(), *lookup.head.parameters()], lr=0.1)
for i in (1, 3, 2, 3):
    loss = lookup.head(lookup.vector(i)).pow(2).sum()  # USED
    optimizer.zero_grad()
    loss.backward()  # FREED
    optimizer.step()
