# SPDX-License-Identifier: Apache-2.0
"""State that cannot be loaded is refused before anything changes, and saved state is never lost."""

import copy

import pytest

torch = pytest.importorskip("torch")

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import loss_of, new_model, options  # noqa: E402


def offloaded(**more):
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    return model, strata.torch.Optimizer(state, lr=1e-2, **more)


def train(model, optimizer, steps):
    for step in steps:
        loss_of(model, step).backward()
        optimizer.step()


def of_another_shape(state):
    state["state"][0]["exp_avg"] = torch.zeros(3)


def on_meta(state):
    state["state"][0]["exp_avg_sq"] = state["state"][0]["exp_avg_sq"].to("meta")


def without_a_moment(state):
    del state["state"][2]["exp_avg"]


def in_other_groups(state):
    state["param_groups"][0]["params"].pop()


def with_other_betas(state):
    state["param_groups"][0]["betas"] = (0.5, 0.5)


def with_option(name, value):
    def change(state):
        state["param_groups"][0][name] = value

    return change


def of_sgd(state):
    del state["param_groups"][0]["betas"]


def with_a_buffer(state):
    state["state"][0] = {"momentum_buffer": state["state"][0]["exp_avg"]}


@pytest.mark.parametrize(
    "change, words",
    [
        (of_another_shape, r"exp_avg of embedding.weight: shape \(3,\)"),
        (on_meta, "exp_avg_sq of embedding.weight: .*meta"),
        (without_a_moment, "blocks.0.norm.bias: it has no exp_avg"),
        (in_other_groups, "the same groups"),
        (with_other_betas, "betas"),
        (with_option("amsgrad", True), "amsgrad: of another algorithm"),
        (with_option("maximize", True), "maximize: of another algorithm"),
        (with_option("decoupled_weight_decay", False), "decoupled_weight_decay: of another"),
        (of_sgd, "no betas: of another algorithm"),
        (with_a_buffer, "momentum_buffer: of another algorithm"),
    ],
)
def test_a_state_that_cannot_be_loaded_changes_nothing(change, words):
    model, optimizer = offloaded()
    train(model, optimizer, range(2))
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    given = copy.deepcopy(before[1])
    given["param_groups"][0]["lr"] = 7.0
    change(given)
    with pytest.raises(strata.ConfigError, match=words):
        optimizer.load_state_dict(given)
    assert optimizer.param_groups[0]["lr"] == 1e-2
    now = optimizer.state_dict()
    assert all(torch.equal(values, before[0][name]) for name, values in model.state_dict().items())
    for index, of in before[1]["state"].items():
        assert all(torch.equal(values, now["state"][index][key]) for key, values in of.items())
    train(model, optimizer, [2])


def test_weights_that_cannot_be_loaded_change_nothing():
    model, optimizer = offloaded()
    before = model.state_dict()
    for wrong in (torch.zeros(3), before["norm.bias"].to("meta")):
        with pytest.raises((strata.ConfigError, RuntimeError), match="norm.bias"):
            model.load_state_dict({**before, "norm.bias": wrong})
        assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_a_checkpoint_that_is_not_there_changes_nothing(tmp_path):
    model, optimizer = offloaded(checkpoints=tmp_path / "checkpoints")
    train(model, optimizer, range(2))
    saved, before = optimizer.state_dict(), model.state_dict()
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    with pytest.raises(strata.ConfigError, match="it does not exist, nor does .*checkpoints=DIR"):
        optimizer.load_state_dict(saved)
    with pytest.raises(strata.ConfigError, match="manifest.json"):
        optimizer._store_of.load(tmp_path)
    with pytest.raises(strata.ConfigError, match="manifest.json"):
        optimizer._store_of.store.load(checkpoint=tmp_path)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    train(model, optimizer, [2])
    twin, other = offloaded(checkpoints=tmp_path / "moved")
    other.load_state_dict(saved)
    assert all(torch.equal(values, before[name]) for name, values in twin.state_dict().items())


def frozen_and_offloaded(**more):
    model = new_model()
    model.blocks[0].requires_grad_(False)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    return model, state, strata.torch.Optimizer(state, lr=1e-2, **more)


def flip_a_bit(saved):
    with open(saved["strata_checkpoint"] + "/state-rank00000.bin", "r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 1]))


def test_a_damaged_checkpoint_changes_nothing(tmp_path):
    model, state, optimizer = frozen_and_offloaded(checkpoints=tmp_path)
    train(model, optimizer, range(2))
    saved = optimizer.state_dict()
    train(model, optimizer, range(2, 4))
    before = copy.deepcopy(model.state_dict())
    flip_a_bit(saved)
    with pytest.raises(strata.CorruptError, match="checksum"):
        optimizer.load_state_dict(saved)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    train(model, optimizer, [4])
    flip_a_bit(saved)
    optimizer.load_state_dict(saved)
    assert state.updates() == 2
    state.restore()


def test_frozen_weights_outlive_a_load_that_fails(tmp_path, monkeypatch):
    model, state, optimizer = frozen_and_offloaded()
    train(model, optimizer, range(2))
    path = state.save(tmp_path)
    before = copy.deepcopy(model.state_dict())

    def fail(tensors):
        return lambda name, first, out: False

    with monkeypatch.context() as patch:
        patch.setattr(strata.torch._offload, "fill_of", fail)
        for _ in range(2):
            with pytest.raises(strata.Interrupted):
                state.load(path)
    state.load(path)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    train(model, optimizer, [2])
    with pytest.raises(strata.Interrupted):
        state.store.load(lambda name, first, out: False)
    with pytest.raises(strata.UsageError, match="an earlier failure lost .*offload the model again"):
        state.load(path)


def test_a_relative_directory_of_checkpoints_is_that_of_the_beginning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, optimizer = offloaded(checkpoints="checkpoints")
    monkeypatch.chdir("/")
    train(model, optimizer, range(1))
    assert optimizer.state_dict()["strata_checkpoint"].startswith(str(tmp_path / "checkpoints"))


def test_parameters_may_be_frozen_midway_and_the_others_keep_their_moments(tmp_path):
    def groups_of(model):
        trained = [p for p in model.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.dim() > 1]
        others = [p for p in trained if p.dim() <= 1]
        return [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]

    def freeze(model):
        model.blocks[0].requires_grad_(False)
        model.norm.bias.requires_grad_(False)

    def losses_of(model, optimizer, steps):
        losses = []
        for step in steps:
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    plain = new_model()
    adamw = torch.optim.AdamW(groups_of(plain), lr=1e-2)
    expected = losses_of(plain, adamw, range(3))
    adamw.zero_grad()
    freeze(plain)
    expected += losses_of(plain, adamw, range(3, 8))

    model = new_model()
    offload = lambda: strata.torch.offload(model, lambda: loss_of(model, 0), options())  # noqa: E731
    state = offload()
    optimizer = strata.torch.Optimizer(state, groups_of(model), lr=1e-2)
    losses = losses_of(model, optimizer, range(3))
    saved = optimizer.state_dict()
    optimizer.checkpoints = tmp_path
    by_path = optimizer.state_dict()
    state.restore()
    freeze(model)
    state = offload()
    optimizer = strata.torch.Optimizer(state, groups_of(model), lr=1.0)
    with pytest.raises(strata.ConfigError, match="frozen now .load what state_dict"):
        optimizer.load_state_dict(by_path)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[1]["lr"] == 1e-2
    losses += losses_of(model, optimizer, range(3, 8))
    assert losses == pytest.approx(expected, rel=2e-5)
    saved = optimizer.state_dict()
    state.restore()
    model.requires_grad_(True)
    state = offload()
    optimizer = strata.torch.Optimizer(state, groups_of(model), lr=1e-2)
    with pytest.raises(strata.ConfigError, match="may be frozen, but none may be new"):
        optimizer.load_state_dict(saved)


def test_a_saved_state_is_never_written_over(tmp_path):
    model, optimizer = offloaded(checkpoints=tmp_path / "checkpoints")
    saved, new = [], {"state": {}, "param_groups": optimizer.state_dict()["param_groups"]}
    for first in (0, 10, 20):
        optimizer.load_state_dict(new)
        model.load_state_dict(new_model().state_dict())
        train(model, optimizer, range(first, first + 3))
        (loss_of(model, 0) * float("nan")).backward()  # a step without an update
        optimizer.step()
        saved.append((optimizer.state_dict(), model.state_dict()))
    assert len({state["strata_checkpoint"] for state, _ in saved}) == 3
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    optimizer.checkpoints = tmp_path / "moved"
    for state, weights in saved:
        optimizer.load_state_dict(state)
        now = model.state_dict()
        assert all(torch.equal(now[name], values) for name, values in weights.items())


def bytes_below(directory):
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_a_checkpoint_of_an_earlier_part_of_the_run_is_never_replaced(tmp_path):
    model, optimizer = offloaded()
    state = optimizer._store_of
    train(model, optimizer, [0])
    first = state.save(tmp_path)
    assert state.save(tmp_path) == first  # its own, of the same step
    train(model, optimizer, [1])
    state.save(tmp_path)
    saved, weights, files = optimizer.state_dict(), model.state_dict(), bytes_below(tmp_path)
    model, optimizer = offloaded()
    state = optimizer._store_of
    model.load_state_dict(weights)
    optimizer.load_state_dict(saved)
    for step in (2, 3):  # a next part, whose first step is step-000001
        train(model, optimizer, [step])
        with pytest.raises(strata.ConfigError, match="step-00000.: it is there .*another directory, such as .*/from-"):
            state.save(str(tmp_path))
    assert bytes_below(tmp_path) == files
    train(model, optimizer, [4])
    assert state.save(tmp_path).endswith("step-000003")
    state.load(first)
    assert state.save(tmp_path) == first
    train(model, optimizer, [5])
    with pytest.raises(strata.ConfigError, match="step-000002: it is there"):
        state.save(tmp_path)
    assert state.updates() == 2
    path = state.save(tmp_path / "from-000002")
    before = copy.deepcopy(model.state_dict())
    train(model, optimizer, [6])
    model.load_state_dict(new_model().state_dict())
    state.load(path)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_a_checkpoint_of_another_run_is_never_replaced(tmp_path):
    for seed in range(2):
        model, optimizer = offloaded()
        train(model, optimizer, [seed])
        if seed == 0:
            optimizer._store_of.save(tmp_path)
            files = bytes_below(tmp_path)
    with pytest.raises(strata.ConfigError, match="step-000001: it is there already"):
        optimizer._store_of.save(tmp_path)
    assert bytes_below(tmp_path) == files
    with pytest.raises(strata.ConfigError, match="save: 3 .give a path"):
        optimizer._store_of.save(3)
