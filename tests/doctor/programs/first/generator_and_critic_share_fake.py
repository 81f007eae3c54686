# rule: shared-in-pass
# carrier: fake
# fix: fake.detach()
import torch
from torch import nn

generator = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
g_opt = torch.optim.SGD(generator.parameters(), 0.1)
c_opt = torch.optim.SGD(critic.parameters(), 0.1)
for _ in range(2):
    fake = generator(torch.randn(5, 2))  # MADE
    c_loss = critic(fake).mean() - critic(torch.randn(5, 3)).mean()
    c_opt.zero_grad()
    c_loss.backward()  # FREED
    c_opt.step()
    g_loss = -critic(fake).mean()  # USED
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
