import torch
from torch import nn


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
        self.logged = {}

    def log(self, name, value):
        self.logged.setdefault(name, []).append(value.detach())

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("train", loss)
        return {"loss": loss, "index": index}

    def validation_step(self, batch, index):
        self.log("valid", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


class Loop:
    def fit(self, module, train, valid, epochs=2):
        self.optimizer = module.configure_optimizers()
        for _ in range(epochs):
            module.train()
            for i, batch in enumerate(train):
                output = module.training_step(batch, i)
                self.optimizer.zero_grad()
                self.backward(output["loss"])
                self.optimizer.step()
            module.eval()
            with torch.no_grad():
                for i, batch in enumerate(valid):
                    module.validation_step(batch, i)

    def backward(self, loss):
        loss.backward()


data = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(4)]
Loop().fit(Module(), data, data[:2])
