import torch
from torch import nn
from torch.nn import functional as F

encoder, decoder, codes = nn.Linear(4, 3), nn.Linear(3, 4), nn.Embedding(6, 3)
opt = torch.optim.Adam(
    [*encoder.parameters(), *decoder.parameters(), *codes.parameters()], 1e-3
)
for _ in range(4):
    x = torch.randn(7, 4)
    z = encoder(x)
    nearest = torch.cdist(z, codes.weight).argmin(1)
    quantised = codes(nearest)
    through = z + (quantised - z).detach()
    loss = F.mse_loss(decoder(through), x)
    loss = loss + F.mse_loss(quantised, z.detach()) + 0.25 * F.mse_loss(z, quantised.detach())
    opt.zero_grad()
    loss.backward()
    opt.step()
