# rule: unused-term
import torch
from torch import nn

encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], 0.1)


def step(x):
    code = encoder(x)
    losses = {
        "reconstruction": (decoder(code) - x).pow(2).mean(),
        "prior": code.pow(2).mean(),  # MADE
    }
    opt.zero_grad()
    losses["reconstruction"].backward()
    opt.step()


for _ in range(4):
    step(torch.randn(5, 4))
