# rule: made-once
# carrier: adjacency
# fix: again in every pass
import torch
from torch import nn


class GraphLayer(nn.Module):
    def __init__(self, nodes, width):
        super().__init__()
        self.edge_logits = nn.Parameter(torch.randn(nodes, nodes))
        self.mix = nn.Linear(width, width)
        self.adjacency = None

    def normalised(self):
        if self.adjacency is None:
            self.adjacency = torch.softmax(self.edge_logits, dim=-1)  # MADE
        return self.adjacency

    def forward(self, h):
        return torch.relu(self.normalised() @ self.mix(h))


def epoch(layer, optimizer, h):
    optimizer.zero_grad(set_to_none=True)
    objective = layer(h).var()
    objective.backward()  # FREED
    optimizer.step()


gnn = GraphLayer(5, 3)
sgd = torch.optim.SGD(gnn.parameters(), lr=0.1)
h = torch.randn(5, 3)
for _ in range(2):
    epoch(gnn, sgd, h)
