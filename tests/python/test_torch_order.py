# SPDX-License-Identifier: Apache-2.0
"""Parameters have the order of the model in the optimizer and its state, whichever of them are kept, frozen,
shared or in other parts, so that torch.optim.AdamW and another offload read each other's moments."""

import copy

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import loss_of, new_model, options  # noqa: E402

KEPT = ["blocks.0.norm.weight", "norm.weight", "blocks.1.up.bias"]


def offloaded(keep=(), **more):
    model = new_model()
    freeze(model)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(), keep=keep, **more)
    return model, strata.torch.Optimizer(state, lr=1e-2, weight_decay=0.01)


def freeze(model):
    model.blocks[1].norm.requires_grad_(False)


def trained_names(model):
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def adamw_of(model, names=False):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return torch.optim.AdamW(named if names else [p for _, p in named], lr=1e-2)


def plain(steps):
    model = new_model()
    freeze(model)
    adamw = adamw_of(model)
    return train(model, adamw, range(steps)), model, adamw


def without_names(saved):
    for group in saved["param_groups"]:
        group.pop("param_names", None)
    return saved


def parts_in_another_order(model):
    parts = [(name, module) for name, module in model.named_children() if name != "blocks"]
    return [*parts, *((f"blocks.{i}", block) for i, block in enumerate(model.blocks))]


def test_trained_parameters_have_the_order_of_the_model():
    for more in ({}, {"keep": KEPT}):
        model, optimizer = offloaded(**more)
        state = optimizer._store_of
        assert [state.name_of(p) for p in state.trained_parameters()] == trained_names(model)
    model = new_model()
    parts = parts_in_another_order(model)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(), parts=parts)
    assert [state.name_of(p) for p in state.trained_parameters()] == trained_names(model)


@pytest.mark.parametrize("names", [False, True])
def test_moments_of_adamw_come_to_their_parameters_where_some_are_kept(names):
    expected, _, _ = plain(6)
    _, twin, adamw = plain(3)
    saved = adamw.state_dict()
    if names:
        named = adamw_of(twin, names=True)
        named.load_state_dict(saved)
        saved = named.state_dict()
    model, optimizer = offloaded(KEPT)
    model.load_state_dict(twin.state_dict())
    optimizer.load_state_dict(saved)
    assert train(model, optimizer, range(3, 6)) == pytest.approx(expected[3:], rel=2e-5)


def test_adamw_reads_the_moments_where_some_are_kept():
    expected, _, _ = plain(6)
    model, optimizer = offloaded(KEPT)
    train(model, optimizer, range(3))
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["param_names"] == trained_names(model)
    for given in (saved, without_names(copy.deepcopy(saved))):
        twin = new_model()
        freeze(twin)
        twin.load_state_dict(model.state_dict())
        adamw = adamw_of(twin)
        adamw.load_state_dict(given)
        assert train(twin, adamw, range(3, 6)) == pytest.approx(expected[3:], rel=2e-5)


@pytest.mark.parametrize("way", ["names", "order", "the names of an older version"])
@pytest.mark.parametrize("first, second", [((), KEPT), (KEPT, KEPT[:1]), (KEPT, ())])
def test_offloads_that_keep_others_read_each_others_moments(first, second, way):
    expected, _, _ = plain(6)
    model, optimizer = offloaded(first)
    train(model, optimizer, range(3))
    saved, weights = optimizer.state_dict(), model.state_dict()
    if way == "the names of an older version":  # in which the last ones were those that are kept
        names = saved["param_groups"][0]["param_names"]
        old = sorted(range(len(names)), key=lambda index: names[index] in first)
        saved["state"] = {new: saved["state"][index] for new, index in enumerate(old)}
        saved["strata_names"] = [names[index] for index in old]
    if way != "names":
        saved = without_names(saved)
    model, optimizer = offloaded(second)
    model.load_state_dict(weights)
    optimizer.load_state_dict(saved)
    assert train(model, optimizer, range(3, 6)) == pytest.approx(expected[3:], rel=2e-5)


def test_a_checkpoint_is_that_of_an_offload_that_keeps_the_same(tmp_path):
    expected, _, _ = plain(6)
    model, optimizer = offloaded(KEPT)
    train(model, optimizer, range(3))
    optimizer.checkpoints = tmp_path
    saved = optimizer.state_dict()
    model, optimizer = offloaded(KEPT[:1])
    with pytest.raises(strata.ConfigError, match="it is of another model"):
        optimizer.load_state_dict(saved)
    model, optimizer = offloaded(list(reversed(KEPT)))
    optimizer.load_state_dict(saved)
    assert train(model, optimizer, range(3, 6)) == pytest.approx(expected[3:], rel=2e-5)


def test_groups_keep_the_order_that_they_are_given_in():
    model, optimizer = offloaded(KEPT)
    state = optimizer._store_of
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    biases = [(n, p) for n, p in reversed(named) if n.endswith("bias")]
    others = [p for n, p in named if not n.endswith("bias")]
    del optimizer
    optimizer = strata.torch.Optimizer(state, [{"params": biases, "lr": 1e-3}, {"params": others}])
    given = [[n for n, _ in biases], [n for n, _ in named if not n.endswith("bias")]]
    assert [group["param_names"] for group in optimizer.param_groups] == given
    assert [group["lr"] for group in optimizer.state_dict()["param_groups"]] == [1e-3, 1e-3]


def test_a_state_of_parameters_with_other_names_is_refused():
    _, twin, adamw = plain(2)
    named = adamw_of(twin, names=True)
    named.load_state_dict(adamw.state_dict())
    saved = named.state_dict()
    names = saved["param_groups"][0]["param_names"]
    saved["param_groups"][0]["param_names"] = [f"module.{name}" for name in names]
    model, optimizer = offloaded()
    words = 'embedding.weight: group 0 of the state does not have it, but module.embed.*"param_names" is loaded'
    with pytest.raises(strata.ConfigError, match=words):
        optimizer.load_state_dict(saved)
    optimizer.load_state_dict(without_names(saved))
    assert optimizer._store_of.updates() == 2


def test_moments_of_shared_parameters_come_to_them():
    """The head, which comes before the embedding in its model, has the embedding's matrix."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(16, 32, bias=False)
            self.middle = nn.Linear(16, 16)
            self.embedding = nn.Embedding(32, 16)
            self.embedding.weight = self.head.weight
            self.scale = nn.Parameter(torch.ones(16))

        def forward(self, tokens):
            return self.head(torch.tanh(self.middle(self.embedding(tokens))) * self.scale)

    def tied():
        torch.manual_seed(3)
        return Tied()

    def train_tied(model, optimizer, steps):
        losses = []
        for step in steps:
            optimizer.zero_grad()
            loss = tied_loss(model, step)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def tied_loss(model, step):
        tokens = torch.randint(0, 32, (4, 5), generator=torch.Generator().manual_seed(step))
        return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    twin = tied()
    adamw = torch.optim.AdamW(twin.parameters(), lr=1e-2)
    expected = train_tied(twin, adamw, range(3))
    model = tied()
    keep = ["embedding.weight", "middle.bias"]
    state = strata.torch.offload(model, lambda: tied_loss(model, 0), options(), keep=keep)
    assert "scale" in state.kept
    optimizer = strata.torch.Optimizer(state, lr=1e-2, weight_decay=0.01)
    assert train_tied(model, optimizer, range(3)) == pytest.approx(expected, rel=2e-5)
    saved = optimizer.state_dict()
    names = [name for name, _ in twin.named_parameters()]
    assert [state.name_of(parameter) for parameter in state.trained_parameters()] == names
    for index, of in adamw.state_dict()["state"].items():
        torch.testing.assert_close(saved["state"][index]["exp_avg"], of["exp_avg"], rtol=1e-4, atol=1e-6)
