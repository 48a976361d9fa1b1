# SPDX-License-Identifier: Apache-2.0
"""Models of the tests of strata.torch, and how plain PyTorch trains them."""

import torch
from torch import nn

VOCABULARY, WIDTH, LENGTH = 61, 24, 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 3 * WIDTH)
        self.down = nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + torch.cumsum(self.mix(self.norm(x)), 1) / LENGTH
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    """The head shares the matrix of the embedding."""

    def __init__(self, blocks=3):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(step):
    random = torch.Generator().manual_seed(step)
    return torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=random)


def loss_of(model, step):
    tokens = batch(step)
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def new_model(**arguments):
    torch.manual_seed(7)
    return Model(**arguments)


def plain_losses(model, steps, micro_batches=1, loss=loss_of, fused=False):
    trained = [p for p in model.parameters() if p.requires_grad]
    decays = [p for p in trained if p.dim() >= 2]
    others = [p for p in trained if p.dim() < 2]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    for parameter in trained:  # what is left out has gradients of zero
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, fused=fused)
    losses = []
    for step in range(steps):
        for m in range(micro_batches):
            value = loss(model, micro_batches * step + m) / micro_batches
            value.backward()
            losses.append(value.item())
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return losses


def options(micro_batches=1, **more):
    return {
        "recipe": "fp32",
        "threads": 1,
        "accumulate": micro_batches,
        "betas": [0.9, 0.999],
        "weight_decay": 0.1,
        "clip": 0,
        **more,
    }


def offloaded_losses(state, model, steps, micro_batches=1, loss=loss_of):
    losses = []
    for step in range(steps):
        for m in range(micro_batches):
            value = loss(model, micro_batches * step + m) / micro_batches
            value.backward()
            losses.append(value.item())
        assert state.step(1e-2).applied
    return losses
