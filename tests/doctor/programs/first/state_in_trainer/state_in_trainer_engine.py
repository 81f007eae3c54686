import torch


class Engine:
    def __init__(self, net, rate):
        self.net = net
        self.state = None
        self.optimizer = torch.optim.SGD(net.parameters(), rate)

    def run(self, batches):
        for batch in batches:
            self._update(batch)

    def _update(self, batch):
        prediction, self.state = self.net(batch, self.state)
        self.optimizer.zero_grad()
        self._backward(prediction.pow(2).mean())
        self.optimizer.step()

    def _backward(self, loss):
        loss.backward()  # FREED
