# SPDX-License-Identifier: Apache-2.0
"""PyTorch models over a store have the losses of torch.optim.AdamW, wherever their state lies."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402

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


def plain_losses(model, steps, micro_batches=1):
    trained = [p for p in model.parameters() if p.requires_grad]
    decays = [p for p in trained if p.dim() >= 2]
    others = [p for p in trained if p.dim() < 2]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-8)
    losses = []
    for step in range(steps):
        for m in range(micro_batches):
            loss = loss_of(model, micro_batches * step + m) / micro_batches
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses


def options(tmp_path, micro_batches=1, **more):
    return {
        "recipe": "fp32",
        "threads": 1,
        "accumulate": micro_batches,
        "betas": [0.9, 0.999],
        "weight_decay": 0.1,
        "clip": 0,
        **more,
    }


def offloaded_losses(state, model, steps, micro_batches=1):
    losses = []
    for step in range(steps):
        for m in range(micro_batches):
            loss = loss_of(model, micro_batches * step + m) / micro_batches
            loss.backward()
            losses.append(loss.item())
        assert state.step(1e-2).applied
    return losses


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_losses_are_those_of_adamw_in_memory_and_on_a_drive(tmp_path, micro_batches):
    expected = plain_losses(new_model(), 8, micro_batches)
    seen = []
    for more in ({}, {"host_memory": "440KiB", "nvme": str(tmp_path)}):
        model = new_model()
        given = options(tmp_path, micro_batches, **more)
        state = strata.torch.offload(model, lambda: loss_of(model, 0), given)
        seen.append(offloaded_losses(state, model, 8, micro_batches))
        assert seen[-1] == pytest.approx(expected, rel=2e-5)
        if more:
            assert state.store.statistics().nvme_bytes_written > 0
        state.restore()
        assert loss_of(model, 99).isfinite()
    assert seen[0] == seen[1]


def test_the_order_is_that_of_the_model(tmp_path):
    model = new_model()
    parts = [name for name, _ in strata.torch.parts_of(model)]
    assert parts == ["blocks.0", "blocks.1", "blocks.2", "embedding", "norm", "head"]
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(tmp_path))
    assert torch.isnan(model.norm.weight).all()
    with state.evaluating():
        logits = model(batch(0)[:, :-1])
    assert logits.isfinite().all()
    assert set(state.state_dict()) == {
        name for name, _ in new_model().named_parameters() if name != "head.weight"
    }


def test_a_step_that_fails_is_discarded(tmp_path):
    model, twin = new_model(), new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(tmp_path))

    def fails(_module, _inputs):
        raise RuntimeError("in the middle")

    hook = model.blocks[1].up.register_forward_pre_hook(fails)
    with pytest.raises(RuntimeError):
        loss_of(model, 0)
    hook.remove()
    state.discard()
    expected = plain_losses(twin, 2)
    assert offloaded_losses(state, model, 2) == pytest.approx(expected, rel=2e-5)


def test_another_order_is_an_error_that_names_both(tmp_path):
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(tmp_path))
    model.blocks = model.blocks[:1].append(model.blocks[2])
    with pytest.raises(strata.ConfigError, match="blocks.1"):
        loss_of(model, 0)
    state.discard()


def test_activation_checkpointing_is_refused(tmp_path):
    from torch.utils.checkpoint import checkpoint

    model = new_model()

    def loss():
        x = model.embedding(batch(0))
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return model.head(model.norm(x)).sum()

    with pytest.raises(strata.ConfigError, match="activation checkpointing"):
        strata.torch.offload(model, loss, options(tmp_path))


def test_frozen_modules_have_no_state(tmp_path):
    def freeze(model):
        for parameter in [*model.embedding.parameters(), *model.blocks[0].parameters()]:
            parameter.requires_grad_(False)
        return model

    expected = plain_losses(freeze(new_model()), 4)
    model = freeze(new_model())
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(tmp_path))
    assert offloaded_losses(state, model, 4) == pytest.approx(expected, rel=2e-5)
