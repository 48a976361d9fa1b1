#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes train one model on halves of each batch:

    torchrun --nproc-per-node 2 ranks.py FOLDER [copies|tcp|group]

FOLDER: for scratch files. copies: each process has all of the state, in a store of its own. tcp, the
default: each has half of it, and the stores exchange it by TCP; group: by the process group. With one
process it trains on the whole batches. The losses are the same in all cases.
"""

import os
import pathlib
import sys

import torch
from torch import distributed, nn

import strata.torch

if len(sys.argv) < 2 or "RANK" not in os.environ:
    sys.exit(__doc__)
distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
network = sys.argv[2] if len(sys.argv) > 2 else "tcp"
shares = {} if network == "copies" else {"shard": True, "network": network}
folder = pathlib.Path(sys.argv[1], f"rank{rank}")
folder.mkdir(parents=True)
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(4)]
model = nn.Sequential(nn.Embedding(97, 64), nn.Sequential(*layers), nn.Linear(64, 97))


def loss_of(step):
    tokens = torch.randint(0, 97, (8, 17), generator=torch.Generator().manual_seed(step))
    mine = tokens.chunk(size)[rank]
    return nn.functional.cross_entropy(model(mine[:, :-1]).transpose(1, 2), mine[:, 1:])


memory = "480KiB" if shares and size > 1 else "640KiB"  # less than the state takes
options = {"recipe": "fp32", "threads": 1, "host_memory": memory, "nvme": str(folder)}
group = distributed.group.WORLD
state = strata.torch.offload(model, lambda: loss_of(0), options, group=group, **shares)
optimizer = strata.torch.Optimizer(state, lr=1e-2, clip=1.0)
for step in range(8):
    loss = loss_of(step)
    loss.backward()
    optimizer.step()
    mean = loss.detach() / size
    distributed.all_reduce(mean)
    if rank == 0:
        print(f"step {step + 1} loss {mean.item():.7f} norm {optimizer.result.grad_norm:.6f}")
weights = state.state_dict()  # of all ranks
assert sum(each.numel() for each in weights.values()) == sum(p.numel() for p in model.parameters())
if rank == 0:
    print(f"{state.store.statistics().nvme_bytes} bytes on the drive of each process")
assert os.listdir(folder)
state.store.close()
distributed.destroy_process_group()
