# rule: carried-state
# carrier: average[0] | average[1] | average[2] | average[3]
# fix: .detach()
import torch
from torch import nn

student = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
average = [torch.zeros_like(p) for p in student.parameters()]
optimizer = torch.optim.SGD(student.parameters(), 0.1)


def proximity():
    return sum((p - a).pow(2).sum() for p, a in zip(student.parameters(), average))


for _ in range(3):
    average = [0.9 * a + 0.1 * torch.tanh(p) for a, p in zip(average, student.parameters())]  # MADE USED
    loss = student(torch.randn(4, 2)).pow(2).mean() + proximity()
    optimizer.zero_grad()
    loss.backward()  # FREED
    optimizer.step()
