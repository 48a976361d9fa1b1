# SPDX-License-Identifier: Apache-2.0
"""A forward that is refused leaves the step as it was: it may be finished or dropped."""

import pytest

torch = pytest.importorskip("torch")

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import batch, loss_of, new_model, options, plain_losses  # noqa: E402


def evaluates(model):
    model.eval()
    try:
        with torch.no_grad():
            loss_of(model, 9)
    finally:
        model.train()


def evaluates_a_part(model):
    model.eval()
    try:
        with torch.no_grad():
            model.embedding(batch(9))
    finally:
        model.train()


def transforms(model):
    with torch.no_grad():
        torch.vmap(model)(batch(9)[None])


def transforms_a_part(model):
    with torch.no_grad():
        torch.vmap(model.blocks[1])(torch.ones(2, 1, 10, 24))


def traces(model):
    torch.jit.trace(model, batch(9))


def traces_a_part(model):
    torch.jit.trace(model.blocks[1], torch.ones(1, 10, 24))


CALLS = {
    evaluates: "an evaluation within a step",
    evaluates_a_part: "an evaluation within a step",
    transforms: "torch.vmap",
    transforms_a_part: "torch.vmap",
    traces: "torch.jit.trace",
    traces_a_part: "torch.jit.trace",
}


def refused(model, call):
    with pytest.raises(strata.UsageError, match=CALLS[call]):
        call(model)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("ends", ["finished", "dropped"])
def test_a_step_with_a_refused_call_may_be(ends, call, tmp_path):
    expected = plain_losses(new_model(), 3, 2)
    model = new_model()
    given = options(2, host_memory="440KiB", nvme=str(tmp_path))
    state = strata.torch.offload(model, lambda: loss_of(model, 0), given)
    optimizer = strata.torch.Optimizer(state, lr=1e-2, weight_decay=0.1)
    optimizer.zero_grad()
    if ends == "dropped":
        loss_of(model, 8).backward()
        refused(model, call)
        optimizer.zero_grad()
    losses = []
    for step in range(6):
        loss = loss_of(model, step) / 2
        if ends == "finished" and step in (1, 3):
            refused(model, call)  # before a backward that has a gradient before it
        loss.backward()
        losses.append(loss.item())
        if ends == "finished":
            refused(model, call)
        if step % 2 == 1:
            assert state.step(1e-2).applied
    assert losses == pytest.approx(expected, rel=2e-5)


def test_a_step_with_one_micro_batch_too_many_may_be_finished():
    expected = plain_losses(new_model(), 2)
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    losses = []
    for step in range(2):
        loss = loss_of(model, step)
        loss.backward()
        for _ in range(2):
            with pytest.raises(strata.UsageError, match="a forward after the last of 1 micro-batches"):
                loss_of(model, 7)
        losses.append(loss.item())
        assert state.step(1e-2).applied
    assert losses == pytest.approx(expected, rel=2e-5)


def test_a_forward_that_is_refused_in_its_middle_leaves_a_step_to_be_dropped():
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(2))
    loss_of(model, 0).backward()
    hook = model.blocks[1].register_forward_hook(lambda *_given: transforms_a_part(model))
    refused_in = pytest.raises(strata.UsageError, match="torch.vmap")
    with refused_in:
        loss_of(model, 1)
    hook.remove()
    with pytest.raises(strata.UsageError, match="step after an exception"):
        state.step(1e-2)
    state.zero_grad()
    loss_of(model, 0).backward()
    assert state.step(1e-2).applied


@pytest.mark.parametrize(
    "given, words",
    [
        ({"keep": ["nope"]}, "keep: nope: no parameter of the model .give names of"),
        ({"new": ["nope"]}, "new: nope: no parameter, buffer or module"),
        ({"parts": ["blocks.0"]}, "parts: .'blocks.0'. .give pairs of a name and a module"),
        ({"options": ["host_memory"]}, "options: .'host_memory'. .give values by name"),
        ({"model": lambda tokens: tokens}, "model: a function .give a torch.nn.Module"),
    ],
)
def test_what_offload_is_given_is_checked_before_anything_changes(given, words):
    model = new_model()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    given = {"model": model, "example": lambda: loss_of(model, 0), "options": options(), **given}
    with pytest.raises(strata.ConfigError, match="offload: " + words):
        strata.torch.offload(**given)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
