# SPDX-License-Identifier: Apache-2.0
"""PyTorch models over a store have the losses of torch.optim.AdamW, wherever their state lies."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import (  # noqa: E402
    batch,
    loss_of,
    new_model,
    offloaded_losses,
    options,
    plain_losses,
)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_losses_are_those_of_adamw_in_memory_and_on_a_drive(tmp_path, micro_batches):
    expected = plain_losses(new_model(), 8, micro_batches)
    seen = []
    for more in ({}, {"host_memory": "440KiB", "nvme": str(tmp_path)}):
        model = new_model()
        given = options(micro_batches, **more)
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
    assert parts == ["embedding", "blocks.0", "blocks.1", "blocks.2", "norm", "head"]
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    assert "norm.weight (24,) torch.float32, not in memory" in repr(model.norm.weight)
    with state.evaluating():
        logits = model(batch(0)[:, :-1])
    assert logits.isfinite().all()
    assert set(state.state_dict()) == {
        name for name, _ in new_model().named_parameters() if name != "head.weight"
    }


def test_a_step_that_fails_is_discarded(tmp_path):
    model, twin = new_model(), new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())

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
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    model.blocks = nn.ModuleList([model.blocks[1], model.blocks[0], model.blocks[2]])
    with pytest.raises(strata.UsageError, match="backward of blocks.1 .* has backward of embedding"):
        loss_of(model, 0).backward()
    state.discard()


def test_frozen_modules_have_no_state(tmp_path):
    def freeze(model):
        for parameter in [*model.embedding.parameters(), *model.blocks[0].parameters()]:
            parameter.requires_grad_(False)
        return model

    expected = plain_losses(freeze(new_model()), 4)
    model = freeze(new_model())
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    assert offloaded_losses(state, model, 4) == pytest.approx(expected, rel=2e-5)
