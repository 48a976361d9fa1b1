#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lightning over a store, by a strategy: lightning_strategy.py FOLDER

The strategy leaves the model where the store has it, clips in the optimizer's step, and writes its
checkpoints from the store. FOLDER: for scratch and checkpoints. Needs torch and lightning.
"""

import pathlib
import sys

import lightning
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

import strata.torch


class StoreStrategy(SingleDeviceStrategy):
    """On one device, with the weights, gradients and moments of `self.model` in a store."""

    def __init__(self, options, **settings):
        super().__init__(device="cpu")
        self.options, self.settings = options, settings

    def setup_optimizers(self, trainer):
        module = self.lightning_module
        batch = next(iter(module.train_dataloader()))
        state = strata.torch.offload(module, lambda: module.training_step(batch, 0), self.options)
        self.optimizers = [strata.torch.Optimizer(state, **self.settings)]

    def model_to_device(self):  # the weights stay in the store
        pass


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(4)]
        self.layers = nn.Sequential(nn.Embedding(97, 64), nn.Sequential(*layers), nn.Linear(64, 97))

    def train_dataloader(self):
        tokens = torch.randint(0, 97, (64, 17), generator=torch.Generator().manual_seed(0))
        return torch.utils.data.DataLoader(tokens, batch_size=8)

    def training_step(self, batch, _):
        logits = self.layers(batch[:, :-1]).transpose(1, 2)
        return nn.functional.cross_entropy(logits, batch[:, 1:])

    def on_train_batch_end(self, outputs, *_):
        print(f"step {self.trainer.global_step} loss {outputs['loss'].item():.7f}")

    def configure_optimizers(self):
        """The strategy's."""


if len(sys.argv) < 2:
    sys.exit(__doc__)
folder = pathlib.Path(sys.argv[1])
(folder / "nvme").mkdir(parents=True)
torch.manual_seed(0)
model = Model()
options = {"recipe": "fp32", "threads": 1, "host_memory": "640KiB", "nvme": str(folder / "nvme")}
strategy = StoreStrategy(options, lr=1e-2, clip=1.0)
trainer = lightning.Trainer(
    strategy=strategy, max_epochs=4, default_root_dir=folder, logger=False, log_every_n_steps=1,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(model)
