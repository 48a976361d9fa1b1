# SPDX-License-Identifier: Apache-2.0
"""Directories of a store over a PyTorch model: how they are given, shared, deleted and full."""

import copy
import gc
import shutil

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402

X = torch.linspace(-1, 1, 128).view(2, 64)


def offloaded(directory):
    torch.manual_seed(3)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
    given = {"threads": 1, "host_memory": "384KiB", "nvme": directory}
    return model, strata.torch.offload(model, lambda: model(X).mean(), given)


def step(model, state):
    model(X).mean().backward()
    assert state.step(1e-2).applied


@pytest.mark.parametrize("kind", [lambda path: path, lambda path: (path,), lambda path: [str(path)]])
def test_a_directory_may_be_a_path(kind, tmp_path):
    model, state = offloaded(kind(tmp_path))
    step(model, state)
    assert state.store.statistics().nvme_bytes_written > 0
    assert len(model.state_dict()) == 12


@pytest.mark.parametrize("name, value", [("nvme", 123), ("nvme", [7]), ("betas", 0.9)])
def test_options_of_wrong_kinds_are_named(name, value):
    model = nn.Linear(4, 4)
    with pytest.raises(strata.ConfigError, match=f"options: {name}: "):
        strata.torch.offload(model, lambda: model(torch.ones(1, 4)).sum(), {name: value})
    model(torch.ones(1, 4)).sum().backward()


def test_a_directory_is_for_one_store(tmp_path):
    first = offloaded(str(tmp_path))
    with pytest.raises(strata.ConfigError, match="this process .close the store that has it"):
        offloaded(str(tmp_path))
    first[1].restore()
    step(*offloaded(str(tmp_path)))


def test_a_model_that_was_deleted_gives_its_directory_back(tmp_path):
    gc.collect()
    gc.disable()  # what is left of it is in cycles
    try:
        for _ in range(3):
            model, state = offloaded(str(tmp_path))
            optimizer = strata.torch.Optimizer(state)
            del model, state, optimizer
    finally:
        gc.enable()


def test_copies_are_in_memory_where_the_directory_cannot_take_them(tmp_path, monkeypatch):
    drive = tmp_path / "drive"
    drive.mkdir()
    model, state = offloaded(str(drive))
    step(model, state)
    before = {name: values.clone() for name, values in model.state_dict().items()}
    shutil.rmtree(drive)
    with monkeypatch.context() as patch:
        patch.setattr(strata.torch._copies, "_free_memory", lambda: 4096)
        for call in (model.state_dict, state.restore):
            with pytest.raises(strata.DriveError, match="No such file.*make it again"):
                call()
    step(model, state)
    optimizer = strata.torch.Optimizer(state)
    assert optimizer.state_dict()["state"][0]["step"] == 2
    state.restore()
    assert any(not torch.equal(model.state_dict()[name], values) for name, values in before.items())
    model(X).mean().backward()


def state_of(model, optimizer):
    """Copies in memory."""
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()))


def assert_same(first, second):
    for name, values in first[0].items():
        assert torch.equal(values, second[0][name]), name
    for index, moments in first[1]["state"].items():
        for name, values in moments.items():
            assert torch.equal(values, second[1]["state"][index][name]), (index, name)


def test_a_load_needs_no_more_place_than_what_is_loaded_has(tmp_path):
    """Where the drive is full, what was freed could not be had again. Here it is gone."""
    drive = tmp_path / "drive"
    drive.mkdir()
    model, state = offloaded(str(drive))
    optimizer = strata.torch.Optimizer(state, lr=1e-2)
    states = []
    for _ in range(3):
        model(X).square().mean().backward()
        optimizer.step()
        states.append(state_of(model, optimizer))
    shutil.rmtree(drive)
    for _ in range(2):
        model.load_state_dict(states[0][0])
        optimizer.load_state_dict(states[0][1])
        assert_same(state_of(model, optimizer), states[0])
        for following in states[1:]:
            model(X).square().mean().backward()
            optimizer.step()
            assert_same(state_of(model, optimizer), following)


def test_a_load_that_fails_in_its_middle_says_what_to_load(tmp_path, monkeypatch):
    model, state = offloaded(str(tmp_path))
    optimizer = strata.torch.Optimizer(state, lr=1e-2)
    step(model, state)
    saved = state_of(model, optimizer)
    step(model, state)
    following = state_of(model, optimizer)

    def interrupted(_name, _first, _out):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(strata.torch._offload, "fill_of", lambda _tensors: interrupted)
        state.reload(saved[0])
    for call in (
        lambda: optimizer.load_state_dict(saved[1]),
        lambda: model.load_state_dict({"0.bias": saved[0]["0.bias"]}, strict=False),
    ):
        with pytest.raises(strata.UsageError, match="the state is lost .*with all weights, then"):
            call()
    with pytest.raises(strata.UsageError, match="nothing is loaded"):
        model(X)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    step(model, state)
    assert_same(state_of(model, optimizer), following)


def test_values_that_are_none_are_named_before_anything_is_lost(tmp_path):
    model, state = offloaded(str(tmp_path))
    optimizer = strata.torch.Optimizer(state, lr=1e-2)
    step(model, state)
    saved = state_of(model, optimizer)
    for values in (model[0].bias, model[0].bias.data):
        with pytest.raises(strata.UsageError, match="0.bias: load_state_dict uses it"):
            model.load_state_dict({**saved[0], "0.bias": values})
    with pytest.raises(RuntimeError, match="0.bias: a list .give a tensor"):
        model.load_state_dict({**saved[0], "0.bias": [0.0] * 64})
    assert_same(state_of(model, optimizer), saved)
