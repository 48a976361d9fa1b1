# SPDX-License-Identifier: Apache-2.0
"""After Ctrl-C in an evaluation or while state is read, the next call works."""

import pytest

torch = pytest.importorskip("torch")

import strata.torch  # noqa: E402
from torch_models import loss_of, new_model, options  # noqa: E402


def interrupted(*_given):
    raise KeyboardInterrupt


def offloaded(tmp_path):
    model = new_model()
    model.blocks[0].requires_grad_(False)
    given = options(host_memory="440KiB", nvme=str(tmp_path))
    return model, strata.torch.offload(model, lambda: loss_of(model, 0), given)


def trains(model, state):
    loss_of(model, 0).backward()
    assert state.step(1e-2).applied


def has_its_weights(model, _state):
    plain = new_model().state_dict()
    assert all(torch.equal(values, plain[name]) for name, values in model.state_dict().items())


def is_restored(model, state):
    state.restore()
    has_its_weights(model, state)


NEXT = [trains, has_its_weights, is_restored, lambda model, state: model.blocks[2].state_dict()]


@pytest.mark.parametrize("follows", NEXT)
def test_an_interrupted_evaluation_is_over(follows, tmp_path):
    model, state = offloaded(tmp_path)
    hook = model.blocks[1].up.register_forward_pre_hook(interrupted)
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        loss_of(model, 0)
    hook.remove()
    follows(model, state)
    trains(model, state) if follows is not is_restored else None


@pytest.mark.parametrize("follows", NEXT)
@pytest.mark.parametrize("read", ["_copied", "trained"])
def test_interrupted_reading_of_weights_is_over(read, follows, tmp_path, monkeypatch):
    model, state = offloaded(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if read == "trained":
            patch.setattr(strata.torch._copies, "copy_alone", interrupted)
        else:
            patch.setattr(state, "_copied", interrupted)  # of frozen ones
        model.state_dict()
    follows(model, state)
    trains(model, state) if follows is not is_restored else None
