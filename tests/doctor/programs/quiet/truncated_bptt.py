import torch
from torch import nn

rnn, head = nn.LSTM(2, 4, batch_first=True), nn.Linear(4, 1)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], 0.1)
state = None
for chunk in torch.randn(3, 20, 2).split(5, dim=1):
    if state is not None:
        state = tuple(s.detach() for s in state)
    out, state = rnn(chunk, state)
    loss = head(out).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
