# rule: carried-state
# carrier: state
# fix: .detach()
import torch
from state_in_trainer_engine import Engine
from state_in_trainer_nets import Recurrent

engine = Engine(Recurrent(), rate=0.05)
engine.run([torch.randn(4, 3) for _ in range(4)])
