# SPDX-License-Identifier: Apache-2.0
"""The example computes as plain PyTorch does, and leaves nothing behind: not in buffers, random numbers or
gradients, also where it raises or the model does not fit."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
import strata.torch._recorder  # noqa: E402

X = torch.linspace(-1, 1, 64).view(4, 16)
SMALL = {"threads": 1, "host_memory": "1KiB"}


class Counting(nn.Module):
    """It assigns one buffer, writes another, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)
        self.register_buffer("count", torch.tensor(0.0))

    def forward(self, x):
        self.count = self.count + 1
        scale = random.random() + np.random.rand() + torch.rand(())
        return self.norm(self.linear(x)) * scale


class Late(Exception):
    pass


@pytest.mark.parametrize("options, error", [({"threads": 1}, None), (SMALL, strata.DoesNotFit), ({}, Late)])
def test_buffers_and_generators_are_as_before_the_example(options, error):
    model = Counting()
    buffers = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}

    def example():
        loss = model(X).square().mean()
        if error is Late:
            raise Late
        return loss

    def generators():
        return random.getstate(), np.random.get_state()[1:3], torch.get_rng_state()

    before = generators()
    if error is None:
        strata.torch.offload(model, example, options)
    else:
        with pytest.raises(error):
            strata.torch.offload(model, example, options)
    assert str(generators()) == str(before)
    for name, buffer in model.named_buffers():
        assert buffer is buffers[name][0] and torch.equal(buffer, buffers[name][1])


def test_a_refused_offload_keeps_gradients():
    model = nn.Linear(16, 4)
    model(X).sum().backward()
    before = {name: parameter.grad for name, parameter in model.named_parameters()}
    with pytest.raises(strata.DoesNotFit):
        strata.torch.offload(model, lambda: model(X).sum(), SMALL)
    assert all(parameter.grad is before[name] for name, parameter in model.named_parameters())


def networks():
    """A network, and one around it."""
    torch.manual_seed(1)
    inner = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    return inner, nn.Sequential(nn.Linear(16, 16), inner, nn.Linear(16, 2))


def test_gradients_outside_of_the_model_are_as_before_the_example():
    inner, outer = networks()
    outer[0].weight.grad = torch.ones(16, 16)
    strata.torch.offload(inner, lambda: outer(X).square().mean(), {"threads": 1})
    assert torch.equal(outer[0].weight.grad, torch.ones(16, 16))
    assert outer[0].bias.grad is None and outer[2].weight.grad is None


class Around(nn.Module):
    """It assigns a buffer, and writes that of a module which it does not call."""

    def __init__(self, inner):
        super().__init__()
        self.before, self.inner, self.norm = Counting(), inner, nn.BatchNorm1d(16)

    def forward(self, x):
        y = self.inner(self.before(x))
        return nn.functional.batch_norm(y, self.norm.running_mean, self.norm.running_var, training=True)


@pytest.mark.parametrize("error", [None, Late])
def test_buffers_around_the_model_are_as_before_the_example(error):
    around = Around(nn.Linear(16, 16))
    buffers = {name: (buffer, buffer.clone()) for name, buffer in around.named_buffers()}

    def example():
        loss = around(X).mean()
        if error is not None:
            raise error
        return loss

    if error is None:
        strata.torch.offload(around.inner, example, {"threads": 1})
    else:
        with pytest.raises(error):
            strata.torch.offload(around.inner, example, {"threads": 1})
    for name, buffer in around.named_buffers():
        assert buffer is buffers[name][0] and torch.equal(buffer, buffers[name][1]), name
    if error is None:
        around(X).mean().backward()
        assert around.before.count == around.before.norm.num_batches_tracked == 1


def test_the_backward_of_the_example_has_the_weights_of_its_forward(monkeypatch):
    """Wherever the memory of a use begins."""
    plain = networks()[1]
    expected = []
    plain[0].weight.register_hook(expected.append)
    plain(X).square().mean().backward()
    calls = []

    def shifted(size, _device):
        calls.append(size)
        memory = np.empty(size + 64, np.uint8)
        begin = (16 * len(calls) - memory.ctypes.data) % 64
        return memory[begin : begin + size]

    monkeypatch.setattr(strata.torch._recorder, "new_bytes", shifted)
    inner, outer = networks()
    found = []
    outer[0].weight.register_hook(found.append)
    strata.torch.offload(inner, lambda: outer(X).square().mean(), {"threads": 1})
    assert len(calls) == 4 and torch.equal(found[0], expected[0])
