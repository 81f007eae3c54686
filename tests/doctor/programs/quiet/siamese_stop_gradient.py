import torch
from torch import nn
from torch.nn import functional as F

encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
predictor = nn.Linear(4, 4)
opt = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], 0.05)


def distance(p, z):
    return -F.cosine_similarity(p, z.detach(), dim=-1).mean()


for _ in range(4):
    x = torch.randn(6, 4)
    z1, z2 = encoder(x + 0.1 * torch.randn_like(x)), encoder(x + 0.1 * torch.randn_like(x))
    loss = distance(predictor(z1), z2) / 2 + distance(predictor(z2), z1) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
