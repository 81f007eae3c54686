# rule: same-root-twice
# carrier: total | loss
# fix: delete one
import torch
from torch import nn


class Criterion:
    def __call__(self, model, sample, reduce=True):
        one, two = model(sample), model(sample)
        loss = (one - two).pow(2).mean() + one.pow(2).mean()  # MADE
        if reduce and loss.requires_grad:
            loss.backward()  # FREED
        return loss, len(sample)


class Task:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(3, 6), nn.Dropout(0.5), nn.Linear(6, 1))
        self.criterion = Criterion()

    def train_step(self, sample, optimizer):
        optimizer.zero_grad()
        loss, size = self.criterion(self.model, sample)
        (loss).backward()
        optimizer.step()
        return size


task = Task()
task.train_step(torch.randn(4, 3), torch.optim.SGD(task.model.parameters(), lr=0.1))
