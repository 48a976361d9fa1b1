# SPDX-License-Identifier: Apache-2.0
"""Gradients of a step are those of plain PyTorch, whatever happens between micro-batches; a step
that would count others is refused."""

import time

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from strata.torch._ranks import Ranks  # noqa: E402
from strata.torch._uses import StoreUses  # noqa: E402
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
    given = options(micro_batches)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), given, keep=keep)
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
    optimizer = strata.torch.Optimizer(state)
    optimizer.param_groups[0]["lr"] = float("nan")
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


class Failing(Model):
    """Its own code fails on demand, after its modules."""

    fails = False

    def forward(self, tokens):
        logits = super().forward(tokens)
        if self.fails:
            raise RuntimeError("in the middle")
        return logits


def fails_in_a_hook(register):
    def fail(model, step):
        def hook(*_given):
            raise RuntimeError("in the middle")

        handle = getattr(model.blocks[1].up, register)(hook)
        try:
            loss_of(model, step).backward()
        finally:
            handle.remove()

    return fail


def fails_in_the_root(model, step):
    model.fails = True
    try:
        loss_of(model, step)
    finally:
        model.fails = False


def fails_in_the_last_gradient(model, step):
    """All gradients but one have come to the store."""

    def hook(_gradient):
        raise RuntimeError("in the middle")

    handle = model.embedding.register_full_backward_hook(lambda *_given: hook(None))
    loss = loss_of(model, step)
    try:
        loss.backward()
    finally:
        handle.remove()


FAILURES = {
    "a module's forward": fails_in_a_hook("register_forward_pre_hook"),
    "a module's backward": fails_in_a_hook("register_full_backward_hook"),
    "the root's forward": fails_in_the_root,
    "the last gradient": fails_in_the_last_gradient,
}


@pytest.mark.parametrize("where", FAILURES)
@pytest.mark.parametrize("then", ["a forward", "a step"])
def test_after_an_exception_in_a_micro_batch_the_step_must_be_dropped(where, then):
    model = made(Failing)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(3))
    optimizer = strata.torch.Optimizer(state, lr=0.0)
    loss_of(model, 0).backward()
    with pytest.raises(RuntimeError, match="in the middle"):
        FAILURES[where](model, 1)
    for _ in range(2):
        with pytest.raises(strata.UsageError, match="optimizer.zero_grad"):
            loss_of(model, 2) if then == "a forward" else optimizer.step()
    optimizer.zero_grad()
    for step in range(3):
        loss_of(model, step).backward()
    optimizer.step()
    assert optimizer.result.grad_norm == pytest.approx(norm_of(Failing, range(3)), rel=1e-5)


def test_an_exception_before_the_first_gradient_of_a_step_loses_nothing():
    model = made(Failing)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(2))
    with pytest.raises(RuntimeError, match="in the middle"):
        fails_in_the_root(model, 7)
    for step in range(2):
        loss_of(model, step).backward()
    assert state.step(0.0).grad_norm == pytest.approx(norm_of(Failing, range(2)), rel=1e-5)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)])
        self.first, self.second = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x, head):
        return getattr(self, head)(self.body(x))


def test_a_gradient_of_a_parameter_that_the_example_did_not_use_is_named():
    model, x = made(TwoHeads), torch.ones(2, 8)
    state = strata.torch.offload(model, lambda: model(x, "first").sum(), {"threads": 1})
    assert state.untouched == ["second.weight", "second.bias"]
    with pytest.raises(strata.UsageError, match=r"second\.\w+: .*the example did not use it"):
        model(x, "second").sum().backward()
    state.zero_grad()
    model(x, "first").sum().backward()
    assert state.step(1e-2).applied


class Skipping(Model):
    """It leaves out blocks."""

    skipped = ()

    def forward(self, tokens):
        x = self.embedding(tokens)
        for index, block in enumerate(self.blocks):
            if index not in self.skipped:
                x = block(x)
        return self.head(self.norm(x))


def test_a_step_counts_what_it_leaves_out():
    """A block that is left out is one forward and one backward less."""
    model = made(Skipping)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(2))
    optimizer = strata.torch.Optimizer(state, lr=1e-2)
    assert len(state._uses._order) == 12
    for skipped, count in (
        (((), ()), 0),
        (((1,), ()), 2),
        (((0, 2), (1,)), 6),
        (((0, 1, 2), (0, 1, 2)), 12),
        (((),), 12),  # a micro-batch
        (((), ()), 0),
    ):
        for step, each in enumerate(skipped):
            model.skipped = each
            loss_of(model, step).backward()
        optimizer.step()
        assert optimizer.result.applied and optimizer.result.left_out == count, skipped


def test_uses_that_begin_alike_are_counted_where_they_are_left_out():
    units = [strata.Unit(name, {name: (4,)}) for name in ("a", "b")]
    order = [
        strata.Use(["a"], "forward"),
        strata.Use(["a", "b"], "forward"),
        strata.Use(["a", "b"], "backward"),
    ]
    parameters = {name: nn.Parameter(torch.zeros(4)) for name in ("a", "b")}
    with strata.Store(units, {"threads": 1, "recipe": "fp32"}, order=order, may_leave_out=True) as store:
        store.load(lambda name, first, out: out.fill(1))
        uses = StoreUses(
            nn.Linear(1, 1), store, order, parameters, 1, False, Ranks(None), torch.device("cpu")
        )
        uses.enter()
        for which in ("forward", "backward"):
            slots = uses.acquire(["a", "b"], which)
            assert set(slots) == {"a", "b"}
            del slots
            uses.release(which)
        assert uses.passed_over == 1 and store.step(1e-2).left_out == 0


class Recurrent(nn.Module):
    """It uses a cell as often as the sequence is long."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(8, 8), nn.Linear(8, 1)

    def forward(self, length):
        state = torch.zeros(2, 8)
        for _ in range(length):
            state = self.cell(torch.ones(2, 8), state)
        return self.head(state).mean()


def test_a_longer_sequence_than_that_of_the_example_is_named():
    model = made(Recurrent)
    state = strata.torch.offload(model, lambda: model(4), options(2))
    model(4).backward()
    with pytest.raises(strata.UsageError, match="cell: another forward .* has 4, .*longest sequence"):
        model(7)
    state.zero_grad()
    for length in (4, 2):
        model(length).backward()
    assert state.step(1e-2).applied
    for length in (4, 4):
        model(length).backward()
    with pytest.raises(strata.UsageError, match="after the last of 2 micro-batches"):
        model(4)
    state.zero_grad()
    model(7).backward()
    model(4).backward()
    assert state.step(1e-2).applied


def test_a_micro_batch_that_a_longer_sequence_took_is_named():
    model = made(Recurrent)
    state = strata.torch.offload(model, lambda: model(4), options(3))
    for length in (4, 7):
        model(length).backward()
    with pytest.raises(strata.UsageError, match="cell: another forward .* one of the 3 micro-batches"):
        model(4)


class Renormed(nn.Module):
    def __init__(self, max_norm=0.1):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, max_norm=max_norm)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


@pytest.mark.parametrize("keep", [[], ["embedding.weight"]])
def test_a_weight_that_the_forward_writes_is_named(keep):
    model = made(Renormed)
    before = model.embedding.weight.detach().clone()
    with pytest.raises(strata.ConfigError, match="embedding.weight: the model writes it.*max_norm"):
        strata.torch.offload(model, lambda: loss_of(model, 0), options(), keep=keep)
    assert torch.equal(model.embedding.weight, before)


def test_a_weight_that_a_later_forward_writes_is_named():
    model = made(lambda: Renormed(None))
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    model.embedding.max_norm = 0.1
    with pytest.raises(strata.ConfigError, match="embedding.weight: the model writes it"):
        loss_of(model, 0)
    model.embedding.max_norm = None
    loss_of(model, 0).backward()
    assert state.step(1e-2).applied


def test_a_model_that_is_one_module_or_offloaded_already():
    model = nn.Linear(4, 2)
    x = torch.ones(1, 4)
    state = strata.torch.offload(model, lambda: model(x).sum(), {"threads": 1})
    with pytest.raises(strata.UsageError, match=r"weight: it is in a store already.*restore\(\)"):
        strata.torch.offload(model, lambda: model(x).sum(), {"threads": 1})
    model(x).sum().backward()
    assert state.step(1e-2).applied
    state.restore()
    strata.torch.offload(model, lambda: model(x).sum(), {"threads": 1})
    with pytest.raises(strata.ConfigError, match="no parameters"):
        strata.torch.offload(nn.ReLU(), lambda: None)


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        time.sleep(0.05)
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        time.sleep(0.1)
        return gradient


class Sleeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return Slow.apply(self.linear(x))


def test_the_plan_knows_how_long_modules_compute():
    model = nn.Sequential(Sleeping(), Sleeping())
    parts = [("first", model[0]), ("second", model[1])]
    example = lambda: model(torch.ones(1, 8)).sum()  # noqa: E731
    state = strata.torch.offload(model, example, {"threads": 1, "accumulate": 2}, parts=parts)
    for use in state._uses._order:
        assert use.seconds >= (0.05 if use.which == "forward" else 0.1)
    assert state.plan.data["predicted_step_s"] >= 2 * 2 * 0.15
