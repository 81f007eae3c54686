import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group(
        "gloo", init_method=f"file://{os.path.join(folder, 'store')}", rank=0, world_size=1
    )
    net = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):
        opt.zero_grad()
        net(torch.randn(8, 3)).pow(2).mean().backward()
        opt.step()
    del net
    dist.destroy_process_group()
