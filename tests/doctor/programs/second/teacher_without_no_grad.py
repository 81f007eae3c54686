# rule: made-once
# carrier: soft_labels | targets
# fix: detach
import torch
from torch import nn
from torch.nn import functional as F

teacher, student = nn.Linear(4, 3), nn.Linear(4, 3)
images = torch.randn(12, 4)
soft_labels = torch.softmax(teacher(images) / 2.0, dim=-1)  # MADE
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
order = torch.arange(12).split(4)
for batch in order:
    predicted = F.log_softmax(student(images[batch]), dim=-1)
    loss = F.kl_div(predicted, soft_labels[batch], reduction="batchmean")  # USED
    optimizer.zero_grad()
    loss.backward()  # FREED
    optimizer.step()
