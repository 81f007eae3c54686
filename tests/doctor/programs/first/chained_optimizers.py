# rule: shared-in-pass
# carrier: code
# fix: add the losses | code.detach()
import torch
from torch import nn

encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
e_opt = torch.optim.SGD(encoder.parameters(), 0.1)
d_opt = torch.optim.SGD(decoder.parameters(), 0.1)
for _ in range(2):
    x = torch.randn(5, 4)
    code = encoder(x).tanh()  # MADE
    compact = code.pow(2).mean()
    restored = (decoder(code) - x).pow(2).mean()  # USED
    e_opt.zero_grad()
    d_opt.zero_grad()
    compact.backward()  # FREED
    restored.backward()
    e_opt.step()
    d_opt.step()
