# rule: carried-state
# carrier: hc[0] | hc[1]
# fix: .detach()
import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 1)
        self.hc = None

    def forward(self, series):
        encoded, self.hc = self.lstm(series, self.hc)  # MADE USED
        return self.head(encoded[:, -1])


class Trainer:
    def __init__(self, network):
        self.network = network
        self.optimizer = torch.optim.Adam(network.parameters(), 1e-2)

    def fit(self, steps):
        for _ in range(steps):
            self.training_step(torch.randn(5, 6, 3), torch.randn(5, 1))

    def training_step(self, series, target):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.network(series), target)
        loss.backward()  # FREED
        self.optimizer.step()


Trainer(Forecaster()).fit(3)
