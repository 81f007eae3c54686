# rule: idle-step
import torch
from torch import nn

generator, critic = nn.Linear(2, 3), nn.Linear(3, 1)
g_opt = torch.optim.SGD(generator.parameters(), 0.1)
c_opt = torch.optim.SGD(critic.parameters(), 0.1)
for _ in range(3):
    fake = generator(torch.randn(5, 2)).detach()
    c_loss = critic(fake).mean() - critic(torch.randn(5, 3)).mean()
    c_opt.zero_grad()
    c_loss.backward()
    c_opt.step()
    g_opt.zero_grad()
    g_loss = -critic(fake).mean()
    g_loss.backward()
    g_opt.step()  # USED
