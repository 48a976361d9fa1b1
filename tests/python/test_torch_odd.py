# SPDX-License-Identifier: Apache-2.0
"""Odd models, examples, directories and calls: they work over a store, or an error says what to do and
the next step works."""

import gc
import os
import pickle

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402

X = torch.linspace(-1, 1, 32).view(4, 8)


def new_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def offloaded(model, **more):
    return strata.torch.offload(model, lambda: model(X).mean(), {"threads": 1, **more})


def step(model, state):
    model(X).mean().backward()
    assert state.step(1e-2).applied


@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd, torch.vmap])
def test_transforms_of_functions_are_refused(transform):
    model = new_model()
    state = offloaded(model)
    with torch.no_grad(), pytest.raises(strata.UsageError, match="torch.func.*restore"):
        transform(model)(X)
    step(model, state)
    state.restore()
    transform(model)(X if transform is torch.vmap else X[0])


@pytest.mark.parametrize("memory", ["3MiB", "64MiB"])
def test_a_model_that_is_gone_takes_its_store_with_it(memory, tmp_path):
    for _ in range(2):
        model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)])
        loss = lambda: model(torch.ones(2, 256)).mean()  # noqa: E731
        given = {"threads": 1, "nvme": str(tmp_path), "host_memory": memory}
        state = strata.torch.offload(model, loss, given)
        loss().backward()
        assert state.step(1e-3).applied
        parameter = model[0].weight
        del model, state, loss
        gc.collect()
    with pytest.raises(strata.UsageError, match="model and store are gone"):
        parameter.sum()


def test_gradients_that_are_set_to_none():
    model = new_model()
    state = offloaded(model)
    for _ in range(2):
        step(model, state)
        for parameter in model.parameters():
            parameter.grad = None
    model(X).mean().backward()
    with pytest.raises(strata.UsageError, match="zero_grad"):
        model[0].weight.grad = None
    state.zero_grad()
    with pytest.raises(strata.UsageError, match="param.grad is set"):
        model[0].weight.grad = torch.ones(16, 8)


def test_parameters_without_elements_stay_in_the_model():
    model = new_model()
    model[0].register_parameter("empty", nn.Parameter(torch.zeros(0, 3)))
    model.register_parameter("other", nn.Parameter(torch.zeros(0)))
    state = strata.torch.offload(
        model, lambda: model(X).mean() + model.other.sum() + model[0].empty.sum(), {"threads": 1}
    )
    (model(X).mean() + model.other.sum() + model[0].empty.sum()).backward()
    assert state.step(1e-2).applied
    assert model.state_dict()["0.empty"].shape == (0, 3)


def test_buffers_that_repeat_their_elements():
    model = new_model()
    model[1].register_buffer("mask", torch.ones(1, 16).expand(4, 16))
    model[1].register_buffer("none", torch.ones(1, 0).expand(4, 0))
    model[1].register_forward_hook(lambda module, inputs, output: output * module.mask)
    state = offloaded(model)
    assert model[1].mask.stride() == (0, 1)
    step(model, state)


def sharing(kind):
    model = new_model()
    model[1].other = nn.Linear(16, 8)
    weight = model[0].weight.detach()
    if kind == "buffer":
        model[1].other.register_buffer("first", weight[:3])
    else:
        model[1].other.weight = nn.Parameter(weight.t() if kind == "transposed" else weight[4:, ::2])
    return model


@pytest.mark.parametrize("kind", ["transposed", "part", "buffer"])
def test_parameters_that_share_memory_are_named(kind):
    model = sharing(kind)
    model.requires_grad_(False)
    model[2].requires_grad_(True)
    offloaded(model).restore()  # what does not change may
    model = sharing(kind)
    with pytest.raises(strata.UsageError, match="shares memory with.*one parameter.*clone"):
        offloaded(model)
    both = torch.zeros(256)  # parts of one memory that have no element in common
    model[0].weight = nn.Parameter(both[:128].view(16, 8))
    model[1].other.weight = nn.Parameter(both[128:].view(8, 16))
    model[1].other._buffers.clear()
    step(model, offloaded(model))


def test_a_restored_model_is_pickled_without_its_store():
    model = new_model()
    state = offloaded(model)
    step(model, state)
    model[0].weight.requires_grad_(False)
    state.restore()
    pickled = pickle.dumps(model)
    assert b"strata" not in pickled
    del state
    gc.collect()
    assert pickle.dumps(model) == pickled


@pytest.mark.parametrize(
    "example, named",
    [
        (None, "a NoneType"),
        ({"input_ids": 3}, "a dict"),
        (lambda: None, "but NoneType"),
        (lambda: 3.0, "but float"),
        (lambda: torch.ones(()), r"shape \(\) that needs no gradient"),
        (lambda: X.clone().requires_grad_().mean(), "no trained parameter of the model"),
        (lambda: X, r"shape \(4, 8\)"),
    ],
)
def test_examples_that_give_no_loss_are_named(example, named):
    model = new_model()
    with pytest.raises(strata.ConfigError, match=f"example: .*{named}"):
        strata.torch.offload(model, example, {"threads": 1})
    step(model, offloaded(model))


def test_a_model_that_does_not_train_is_named():
    model = new_model().requires_grad_(False)
    with pytest.raises(strata.ConfigError, match="no parameter of the model is trained"):
        offloaded(model)


def test_a_forward_without_gradients_before_the_backward_is_named():
    model = new_model()
    state = offloaded(model)
    loss = model(X).mean()
    with torch.no_grad():
        model(X)
    with pytest.raises(strata.UsageError, match="after a forward without gradients"):
        loss.backward()
    state.zero_grad()
    step(model, state)


def test_a_relative_directory_is_that_of_the_beginning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("drive")
    model = new_model()
    state = offloaded(model, nvme="drive")
    monkeypatch.chdir("/")
    step(model, state)
    assert set(model.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_shards_that_are_damaged_or_missing_are_named(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    file = tmp_path / "model-00001-of-00002.safetensors"
    model = new_model()
    safetensors.save_file(model.state_dict(), file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"0.weight": "%s", "9": "other.safetensors"}}' % file.name)
    example = lambda: model(X).mean()  # noqa: E731
    with pytest.raises(strata.ConfigError, match="other.safetensors, which is not there"):
        strata.torch.offload(model, example, {"threads": 1}, weights=tmp_path)
    index.unlink()
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(strata.ConfigError, match=f"{file.name}: it cannot be read"):
        strata.torch.offload(model, example, {"threads": 1}, weights=tmp_path)


def backwards_of(model):
    """Both over one forward; the last is left to the caller."""
    y = model(X)
    y.mean().backward(retain_graph=True)
    return (y**2).mean()


def test_two_backwards_over_one_forward_are_those_of_the_example():
    plain = new_model()
    adamw = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    model = new_model()
    state = strata.torch.offload(model, lambda: backwards_of(model), {"threads": 1})
    optimizer = strata.torch.Optimizer(state, lr=1e-2)
    for _ in range(3):
        losses = [backwards_of(each) for each in (plain, model)]
        assert losses[1].item() == pytest.approx(losses[0].item(), rel=2e-5)
        for loss in losses:
            loss.backward()
        adamw.step(), adamw.zero_grad(), optimizer.step()
    other = new_model()
    state = offloaded(other)
    loss = backwards_of(other)
    with pytest.raises(strata.UsageError, match="the example has nothing next .give an example"):
        loss.backward()
    state.zero_grad()
    step(other, state)
