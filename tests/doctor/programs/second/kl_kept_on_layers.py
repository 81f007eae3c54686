# rule: loss-accumulator
# carrier: kl
# fix: from zero
import torch
from torch import nn


class Bayesian(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.mean, self.rho = nn.Parameter(torch.randn(o, i)), nn.Parameter(torch.zeros(o, i))
        self.kl = 0

    def forward(self, x):
        scale = nn.functional.softplus(self.rho)
        self.kl += (scale.pow(2) + self.mean.pow(2) - scale.log()).mean()  # USED
        return x @ (self.mean + scale * torch.randn_like(scale)).T


class Posterior(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = Bayesian(3, 4), Bayesian(4, 1)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))

    def divergence(self):
        return sum(layer.kl for layer in self.children())


posterior = Posterior()
optimizer = torch.optim.Adam(posterior.parameters())
for _ in range(3):
    optimizer.zero_grad()
    nll = posterior(torch.randn(6, 3)).pow(2).mean()
    elbo = nll + 1e-2 * posterior.divergence()
    elbo.backward()  # FREED
    optimizer.step()
