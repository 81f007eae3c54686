# rule: made-once
# carrier: context
# fix: detach
import torch
from torch import nn

text_encoder = nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 6), nn.Tanh())
denoiser = nn.Linear(12, 6)
latent = torch.randn(3, 6, requires_grad=True)
optimizer = torch.optim.Adam([latent], lr=0.1)


def optimise(tokens, iterations):
    context = text_encoder(tokens).mean(1)  # MADE
    for _ in range(iterations):
        noise = denoiser(torch.cat([latent, context], dim=1))  # USED
        loss = noise.pow(2).sum()
        optimizer.zero_grad()
        loss.backward()  # FREED
        optimizer.step()


optimise(torch.randint(0, 20, (3, 5)), 2)
