# rule: step-between
# carrier: weight | critic
# fix: before the first optimizer step
import torch
from torch import nn

generator = nn.Linear(2, 3)
critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
g_opt = torch.optim.SGD(generator.parameters(), 0.1)
c_opt = torch.optim.SGD(critic.parameters(), 0.1)
for _ in range(2):
    fake = generator(torch.randn(5, 2))
    score = critic(fake)
    c_loss, g_loss = score.mean(), -score.mean()
    c_opt.zero_grad()
    c_loss.backward(retain_graph=True)
    c_opt.step()  # FREED
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
