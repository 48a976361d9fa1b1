# SPDX-License-Identifier: Apache-2.0
"""Kinds of models over a store: each has the losses of plain PyTorch."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import (  # noqa: E402
    VOCABULARY,
    WIDTH,
    Block,
    Model,
    batch,
    loss_of,
    offloaded_losses,
    options,
    plain_losses,
)


class TiedByFunction(Model):
    """Its head is no module, and it has a parameter beside its list of blocks."""

    def __init__(self):
        super().__init__()
        del self.head
        self.place = nn.Parameter(torch.randn(10, WIDTH) / 10)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.place
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(self.norm(x), self.embedding.weight)


class LayerTwice(Model):
    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in [*self.blocks, self.blocks[0], self.blocks[0]]:
            x = block(x)
        return self.head(self.norm(x))


class Nested(Model):
    """Its blocks compute with a norm that is not theirs."""

    def __init__(self):
        super().__init__()
        for block in self.blocks:
            block.__dict__["norm_of_all"] = self.norm

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class NestedBlock(Block):
    def forward(self, x):
        return super().forward(self.norm_of_all(x))


class Routing(Block):
    """A block with experts, of which each batch uses one."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))

    def forward(self, x):
        return self.experts[self.chosen](super().forward(x))


class Routed(Model):
    """Its list of blocks has two types of them."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Routing(), Block(), Routing()])

    def forward(self, tokens):
        for block in self.blocks:
            block.chosen = int(tokens.sum()) % 8
        return super().forward(tokens)


class Dropping(Model):
    """It drops activations and leaves out blocks at random."""

    def forward(self, tokens):
        x = nn.functional.dropout(self.embedding(tokens), 0.1, self.training)
        for block in self.blocks:
            if not self.training or torch.rand(()) < 0.6:
                x = block(x)
        return self.head(self.norm(x))


class Images(nn.Module):
    """A convolutional net with batch norms."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        layers = [
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
            for _ in range(3)
        ]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, tokens):
        x = nn.functional.one_hot(tokens, VOCABULARY).float()[:, None]
        return self.head(self.layers(self.stem(x)).mean(3).transpose(1, 2))


def loss_of_images(model, step):
    tokens = batch(step)
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def nested():
    model = Nested()
    for block in model.blocks:
        block.__class__ = NestedBlock
    return model


MAKERS = {
    "tied_by_function": TiedByFunction,
    "layer_twice": LayerTwice,
    "nested": nested,
    "dropping": Dropping,
    "routed": Routed,
    "images": Images,
}


def made(name):
    torch.manual_seed(5)
    return MAKERS[name]()


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("name", MAKERS)
def test_losses_and_buffers_are_those_of_plain_pytorch(name, micro_batches):
    loss = loss_of_images if name == "images" else loss_of
    plain = made(name)
    torch.manual_seed(11)
    expected = plain_losses(plain, 12, micro_batches, loss)
    model = made(name)
    torch.manual_seed(11)
    state = strata.torch.offload(model, lambda: loss(model, 0), options(micro_batches))
    seen = offloaded_losses(state, model, 12, micro_batches, loss)
    assert seen == pytest.approx(expected, rel=2e-5)
    for mine, of_plain in zip(model.buffers(), plain.buffers()):
        torch.testing.assert_close(mine, of_plain)
    kept = {"tied_by_function": ["embedding.weight", "place"]}
    assert state.kept == kept.get(name, [])
    model.eval()
    plain.eval()
    with torch.no_grad():
        for step in (20, 21):
            torch.testing.assert_close(loss(model, step), loss(plain, step), rtol=2e-4, atol=0)
    state.restore()
    with torch.no_grad():
        torch.testing.assert_close(loss(model, 22), loss(plain, 22), rtol=2e-4, atol=0)


def test_parameters_of_a_module_may_be_frozen_in_part():
    def freeze(model):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.endswith("up.weight") or name.endswith("norm.bias"))
        return model

    torch.manual_seed(5)
    expected = plain_losses(freeze(Model()), 4)
    torch.manual_seed(5)
    model = freeze(Model())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    assert offloaded_losses(state, model, 4) == pytest.approx(expected, rel=2e-5)
    assert len(state.state_dict()) == 7
    state.restore()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) != parameter.requires_grad


def test_parameters_may_be_kept_by_name_and_frozen():
    def freeze(model):
        model.embedding.weight.requires_grad_(False)
        return model

    torch.manual_seed(5)
    expected = plain_losses(freeze(Model()), 3)
    torch.manual_seed(5)
    model = freeze(Model())
    before = model.embedding.weight.detach().clone()
    keep = ["head.weight", "norm.bias"]  # the first is that of the embedding
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(), keep=keep)
    assert state.kept == ["embedding.weight", "norm.bias"]
    assert offloaded_losses(state, model, 3) == pytest.approx(expected, rel=2e-5)
    weights = model.state_dict()
    assert torch.equal(weights["embedding.weight"], before)
    assert torch.equal(weights["head.weight"], before)
    state.restore()
    assert torch.equal(model.head.weight, before)
    assert torch.equal(model.norm.bias, weights["norm.bias"])


def test_a_text_in_place_of_a_list_of_kept_names_is_refused():
    model = Model()
    with pytest.raises(strata.ConfigError, match="keep: the text 'norm.bias'"):
        strata.torch.offload(model, lambda: loss_of(model, 0), options(), keep="norm.bias")


def test_parameters_that_are_not_used_stay_as_they_are():
    model = Model()
    model.pooler = nn.Linear(3, 3)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    assert state.untouched == ["pooler.weight", "pooler.bias"]
    assert model.pooler(torch.ones(1, 3)).isfinite().all()


def test_a_forward_without_a_backward_is_dropped():
    torch.manual_seed(5)
    expected = plain_losses(Model(), 3)
    torch.manual_seed(5)
    model = Model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    loss_of(model, 7)
    assert offloaded_losses(state, model, 3) == pytest.approx(expected, rel=2e-5)
