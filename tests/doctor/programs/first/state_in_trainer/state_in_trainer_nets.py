from torch import nn


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(3, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, x, state):
        state = self.cell(x, state)  # MADE USED
        return self.out(state), state
