import torch
from torch import nn


class RNN(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.hidden_size = hidden
        self.i2h, self.h2h = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.h2o = nn.Linear(hidden, outputs)

    def forward(self, x, hidden):
        hidden = torch.tanh(self.i2h(x) + self.h2h(hidden))
        return torch.log_softmax(self.h2o(hidden), 1), hidden

    def init_hidden(self):
        return torch.zeros(1, self.hidden_size)


rnn = RNN(5, 6, 3)
criterion, rate = nn.NLLLoss(), 0.005
current_loss, losses = 0, []
for step in range(6):
    hidden = rnn.init_hidden()
    rnn.zero_grad()
    for letter in torch.randn(4, 1, 5):
        output, hidden = rnn(letter, hidden)
    loss = criterion(output, torch.tensor([step % 3]))
    loss.backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-rate)
    current_loss += loss.item()
    losses.append(current_loss)
