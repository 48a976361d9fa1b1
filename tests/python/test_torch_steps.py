# SPDX-License-Identifier: Apache-2.0
"""Gradients of a step: none is lost or counted that plain PyTorch would not, whatever happens between
micro-batches, and what cannot be counted is refused."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import VOCABULARY, WIDTH, Model, loss_of, new_model, options  # noqa: E402


class Prompted(nn.Module):
    """A trained prompt at the root, over frozen modules."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.requires_grad_(False)
        self.prompt = nn.Parameter(torch.randn(10, WIDTH) / 10)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.prompt
        for block in self.blocks:
            x = block(x).tanh()
        return self.head(x)


def norm_alone():
    model = Model()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name == "norm.bias")
    return model


def made(maker):
    torch.manual_seed(5)
    return maker()


def norm_of(maker, steps, loss=loss_of):
    """The norm of the sum of these losses' gradients, in plain PyTorch."""
    model = made(maker)
    for step in steps:
        loss(model, step).backward()
    return nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()


@pytest.mark.parametrize("micro_batches", [1, 2, 3])
@pytest.mark.parametrize("maker, keep", [(Prompted, []), (norm_alone, ["norm.bias"])])
def test_gradients_of_kept_parameters_alone_are_summed(maker, keep, micro_batches):
    model = made(maker)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(micro_batches), keep=keep)
    assert set(state.state_dict()) == set(state.kept) != set()
    for step in range(micro_batches):
        loss_of(model, step).backward()
    expected = norm_of(maker, range(micro_batches))
    assert state.step(1e-2).grad_norm == pytest.approx(expected, rel=1e-5)


def test_a_forward_without_a_backward_may_precede_an_evaluation():
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    for _ in range(2):
        expected = loss_of(model, 1).item()
        model.eval()
        with torch.no_grad():
            assert loss_of(model, 1).item() == pytest.approx(expected, rel=1e-6)
        model.train()
        loss_of(model, 0).backward()
        assert state.step(1e-2).applied


def test_a_step_that_is_refused_keeps_its_gradients_and_clip():
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    optimizer = strata.torch.Optimizer(state, lr=float("nan"))
    loss_of(model, 0).backward()
    optimizer.clip_grad_norm_(1e-3)
    with pytest.raises(strata.ConfigError, match="nan"):
        optimizer.step()
    assert optimizer._clip_once == 1e-3
    optimizer.param_groups[0]["lr"] = 1e-2
    optimizer.step()
    assert optimizer.result.grad_norm == pytest.approx(norm_of_new_model(0), rel=1e-5)


def norm_of_new_model(*steps):
    model = new_model()
    for step in steps:
        loss_of(model, step).backward()
    return nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()


def test_a_clip_is_dropped_with_its_step():
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    optimizer = strata.torch.Optimizer(state, lr=1e-2)
    loss_of(model, 0).backward()
    optimizer.clip_grad_norm_(1e-3)
    optimizer.zero_grad()
    assert optimizer._clip_once is None
