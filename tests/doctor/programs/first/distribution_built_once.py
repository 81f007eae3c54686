# rule: made-once
# carrier: logits | probs
# fix: again in every pass
import torch
from torch.distributions import Bernoulli

weight = torch.full((4,), 0.3, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
policy = Bernoulli(probs=torch.sigmoid(weight))
for _ in range(2):
    action = policy.sample()
    loss = -policy.log_prob(action).mean()
    optimizer.zero_grad()
    loss.backward()  # FREED
    optimizer.step()
