# SPDX-License-Identifier: Apache-2.0
"""When weights leave memory: at the end of a forward and of a backward, whoever still has tensors over
them, and with the model."""

import gc
import os

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
import test_torch_checkpointing  # noqa: E402
from strata.torch._autograd import _queue_of  # noqa: E402
from torch_models import Model, batch, loss_of, new_model, options, plain_losses  # noqa: E402


def offloaded(model, **more):
    return strata.torch.offload(model, lambda: loss_of(model, 0), options(**more))


def assert_nothing_is_bound(model, state):
    assert state._binder.bound == {} and state.store._view is None
    with pytest.raises(strata.UsageError, match="no unit is acquired"):
        state.store.release()
    for name, parameter in model.named_parameters():
        assert state._binder.is_away(parameter), name


def frozen_head(model):
    """The unit that is bound first in the backward has no gradient of its own."""
    model.head.weight = nn.Parameter(model.head.weight.detach().clone(), requires_grad=False)
    return model


def frozen_beginning(model):
    """The unit that is bound last in the backward is in the middle of the model."""
    model.embedding.requires_grad_(False)
    model.blocks[0].requires_grad_(False)
    return model


class Reentrant(Model):
    """A region of several parts, whose backward is one within the other."""

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = checkpoint(nn.Sequential(*self.blocks), x, use_reentrant=True)
        return self.head(self.norm(x))


def reentrant(model):
    model.__class__ = Reentrant
    return model


KINDS = {
    "plain": lambda model: model,
    "frozen head": frozen_head,
    "frozen beginning": frozen_beginning,
    "reentrant": reentrant,
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_is_bound_after_a_backward(kind, tmp_path):
    expected = plain_losses(KINDS[kind](new_model()), 3, 2)
    model = KINDS[kind](new_model())
    given = {"host_memory": "440KiB", "nvme": str(tmp_path), "accumulate": 2}
    state = offloaded(model, **given)
    losses = []
    for step in range(3):
        for micro_batch in range(2):
            loss = loss_of(model, 2 * step + micro_batch) / 2
            assert_nothing_is_bound(model, state)
            loss.backward()
            assert_nothing_is_bound(model, state)
            losses.append(loss.item())
        assert state.step(1e-2).left_out == 0
    assert losses == pytest.approx(expected, rel=2e-5)


def test_the_end_of_a_backward_within_another_unbinds_nothing():
    model = test_torch_checkpointing.new(0, True)  # the second half of a block is a region
    state = offloaded(model)
    backward = [use.units for use in state._uses._order if use.which == "backward"]
    blocks = [[f"blocks.{index}"] for index in reversed(range(4))]
    assert backward == [["embedding"], ["norm"], *blocks, ["embedding"]]


@pytest.mark.parametrize("public", [torch.autograd.graph, None])
def test_a_call_comes_at_the_end_of_a_backward_in_older_versions_too(public):
    seen, x = [], torch.ones(3, requires_grad=True)
    queue = _queue_of(public)
    y = x * 2
    y.register_hook(lambda gradient: queue(lambda: seen.append("end")))
    x.register_hook(lambda gradient: seen.append("x"))
    y.sum().backward()
    assert seen == ["x", "end"]


def test_no_unit_is_bound_after_the_backward_of_a_part():
    model = new_model()
    state = offloaded(model)
    hidden = model.blocks[0](model.embedding(batch(1)[:, :-1]))
    hidden.sum().backward()
    assert_nothing_is_bound(model, state)
    state.zero_grad()


def test_a_gradient_of_an_input_leaves_no_unit_bound():
    model = new_model()
    state = offloaded(model)
    x = torch.ones(1, 10, 24, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.blocks[1](x).sum(), x)
    assert gradient.isfinite().all()
    assert_nothing_is_bound(model, state)
    state.zero_grad()


def test_an_alias_that_the_example_keeps_is_an_error_that_names_the_unit():
    model, kept = new_model(), []
    hook = model.blocks[1].up.register_forward_hook(
        lambda module, *_given: kept.append(module.weight.detach())
    )
    with pytest.raises(strata.ConfigError, match="blocks.1: something keeps tensors over its weights"):
        offloaded(model)
    hook.remove()
    kept.clear()
    assert loss_of(model, 0).isfinite()


@pytest.mark.parametrize("alias", ["detach", "view", "numpy"])
def test_an_alias_that_a_step_keeps_is_an_error_that_names_the_unit(alias):
    expected = plain_losses(new_model(), 3)
    model, kept = new_model(), []
    state = offloaded(model)
    losses = [step_of(model, state, 0)]

    def keep(module, *_given):
        weight = module.weight.detach()
        kept.append({"detach": weight, "view": weight[2:], "numpy": weight.numpy()}[alias])

    hook = model.blocks[1].up.register_forward_hook(keep)
    with pytest.raises(strata.UsageError, match="blocks.1: an array or tensor over it is in use.*copy"):
        loss_of(model, 1)
    hook.remove()
    kept.clear()
    state.zero_grad()
    losses += [step_of(model, state, step) for step in (1, 2)]
    assert losses == pytest.approx(expected, rel=2e-5)


def test_an_alias_that_outlives_a_dropped_step_has_no_part_in_the_next():
    expected = plain_losses(new_model(), 3)
    model, kept = new_model(), []
    state = offloaded(model)
    keep = lambda module, *_given: kept.append(module.weight.detach())  # noqa: E731
    hook = model.blocks[1].up.register_forward_hook(keep)
    with pytest.raises(strata.UsageError, match="in use"):
        loss_of(model, 1)
    hook.remove()
    state.zero_grad()
    losses = [step_of(model, state, step) for step in range(3)]
    assert losses == pytest.approx(expected, rel=2e-5)
    with pytest.raises(strata.UsageError, match="in use"):
        state.restore()  # would free the memory below the alias
    kept.clear()
    state.restore()


def step_of(model, state, step):
    loss = loss_of(model, step)
    loss.backward()
    assert state.step(1e-2).applied
    return loss.item()


def test_copies_and_the_parameter_itself_may_be_kept():
    model, kept = new_model(), []
    state = offloaded(model)
    keep = lambda module, *_given: kept.extend([module.weight.detach().clone(), module.weight])  # noqa: E731
    hook = model.blocks[1].up.register_forward_hook(keep)
    loss_of(model, 0).backward()
    hook.remove()
    assert state.step(1e-2).applied
    assert torch.equal(kept[0], new_model().blocks[1].up.weight)
    with pytest.raises(strata.UsageError, match="blocks.1.up.weight: .*state_dict"):
        kept[1].sum()


def threads():
    return len(os.listdir("/proc/self/task"))


def open_files():
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # that of the list
            pass


def test_everything_may_be_deleted_in_the_middle_of_a_step(tmp_path):
    def in_the_middle():
        model = new_model()
        state = offloaded(model, host_memory="440KiB", nvme=str(tmp_path))
        assert threads() > before or before == 0
        return loss_of(model, 0)

    before = 0
    for _ in range(3):  # the first one starts threads of PyTorch's
        loss = in_the_middle()
        gc.collect()
        loss.backward()
        del loss
        gc.collect()
        if before:
            assert threads() == before
        before = threads()
        assert os.listdir(tmp_path) == []
        assert not [path for path in open_files() if path.startswith(str(tmp_path))]
    expected = plain_losses(new_model(), 2)
    model = new_model()
    state = offloaded(model, host_memory="440KiB", nvme=str(tmp_path))
    assert [step_of(model, state, step) for step in range(2)] == pytest.approx(expected, rel=2e-5)
