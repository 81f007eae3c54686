# rule: shared-in-pass
# carrier: features | latent
# fix: detach
import torch
from actor_critic_shared_encoder_agent import Agent

agent = Agent(4, 2)
for _ in range(2):
    agent.learn(torch.randn(8, 4), torch.randn(8, 1))
