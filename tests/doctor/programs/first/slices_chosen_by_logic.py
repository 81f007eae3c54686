# rule: row-by-row
# carrier: outputs
# fix: pullback.infer
import torch
from torch import nn

network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
images = torch.randn(8, 4, requires_grad=True)
labels = torch.randint(0, 2, (8,))
outputs = network(images)  # MADE


def my_logic():
    yield from (torch.tensor([1, 4]), torch.tensor([0, 7]), torch.tensor([2, 3]))


for j in my_logic():
    loss = nn.functional.cross_entropy(outputs[j], labels[j])  # USED
    loss.backward()  # FREED
    gradient = images.grad[j]
