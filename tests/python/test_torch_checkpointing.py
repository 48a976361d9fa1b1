# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing over a store: the losses, weights and saved bytes of plain PyTorch."""

import functools

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import strata.torch  # noqa: E402
from torch_models import (  # noqa: E402
    Block,
    Model,
    batch,
    loss_of,
    offloaded_losses,
    options,
    plain_losses,
)


class CheckpointedBlock(Block):
    """Its feed-forward is checkpointed within its forward."""

    def forward(self, x):
        x = x + torch.cumsum(self.mix(self.norm(x)), 1)
        inner = lambda y: self.down(nn.functional.gelu(self.up(y)))  # noqa: E731
        return x + checkpoint(inner, x, use_reentrant=self.reentrant)


class Checkpointed(Model):
    """`region`: blocks that one checkpointed region has; 0: regions within blocks; None: none."""

    def __init__(self, region, reentrant):
        super().__init__(blocks=4)
        self.region, self.reentrant = region, reentrant
        if region == 0:
            self.blocks = nn.ModuleList(CheckpointedBlock() for _ in range(4))
            for block in self.blocks:
                block.reentrant = reentrant

    def forward(self, tokens):
        x = self.embedding(tokens)
        for first in range(0, 4, self.region or 1):
            blocks = nn.Sequential(*self.blocks[first : first + (self.region or 1)])
            if self.region and torch.is_grad_enabled():
                x = checkpoint(blocks, x, use_reentrant=self.reentrant)
            else:
                x = blocks(x)
        return self.head(self.norm(x))


def new(region, reentrant):
    torch.manual_seed(3)
    return Checkpointed(region, reentrant)


def saved_bytes(model, step, loss_of=loss_of):
    """Bytes that autograd saves for the backward, without parameters, and the loss."""
    here = [p for p in model.parameters() if type(p) is nn.Parameter]  # not in a store
    own = {p.untyped_storage().data_ptr(): p.untyped_storage() for p in here}
    saved = {}  # as `own`, it holds the storages, so that no address is used twice

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = loss_of(model, step)
    return sum(storage.nbytes() for storage in saved.values()), loss


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("region", [0, 1, 2])
def test_it_has_the_losses_weights_and_saved_bytes_of_plain_pytorch(region, reentrant, tmp_path):
    plain = new(region, reentrant)
    expected = plain_losses(plain, 12, 2)
    model = new(region, reentrant)
    given = options(2, host_memory="520KiB", nvme=str(tmp_path))
    state = strata.torch.offload(model, lambda: loss_of(model, 0), given)
    assert offloaded_losses(state, model, 12, 2) == pytest.approx(expected, rel=2e-5)
    weights = state.state_dict()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(weights[name], parameter.detach(), rtol=1e-4, atol=1e-5)
    bytes_of_plain, loss = saved_bytes(plain, 9)
    loss.backward()
    bytes_here, loss = saved_bytes(model, 9)
    loss.backward()
    assert bytes_here == bytes_of_plain
    bytes_without, loss = saved_bytes(new(None, reentrant), 9)
    assert bytes_here < bytes_without
    state.discard()


def test_copies_of_weights_that_autocast_makes_are_not_saved():
    def loss_of_autocast(model, step):
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model, step)

    plain = new(None, False)
    expected = plain_losses(plain, 3, loss=loss_of_autocast)
    model = new(None, False)
    state = strata.torch.offload(model, lambda: loss_of_autocast(model, 0), options())
    assert offloaded_losses(state, model, 3, loss=loss_of_autocast) == expected
    bytes_of_plain, _ = saved_bytes(plain, 9, loss_of_autocast)
    bytes_here, loss = saved_bytes(model, 9, loss_of_autocast)
    loss.backward()
    linears = [each for each in plain.modules() if isinstance(each, nn.Linear)]
    assert bytes_here == bytes_of_plain - 2 * sum(each.weight.numel() for each in linears)
    state.discard()


class PastHooks(Model):
    """Its regions compute blocks without their hooks, and use the head's weight outside of the head."""

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block.forward, x, use_reentrant=self.reentrant)
        head = lambda y: nn.functional.linear(y, self.head.weight)  # noqa: E731
        return checkpoint(head, self.norm(x), use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_region_may_use_weights_outside_of_their_modules(reentrant):
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(PastHooks())
        models[-1].reentrant = reentrant
    plain, model = models
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    assert "embedding.weight" in state.kept and "blocks.0.up.weight" in state.kept
    assert offloaded_losses(state, model, 3) == pytest.approx(plain_losses(plain, 3), rel=2e-5)


def test_it_may_begin_after_the_example(tmp_path):
    expected = plain_losses(new(1, False), 3)
    model = new(None, False)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    model.region = 1
    assert offloaded_losses(state, model, 3) == pytest.approx(expected, rel=2e-5)


def around_the_call(model, reentrant):
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})


def inside_forward(model, reentrant):
    """Hooks of a layer are outside of its region."""
    for layer in model.model.layers:
        plain = layer.forward

        def forward(hidden, *given, plain=plain, **keywords):
            region = functools.partial(plain, **keywords)
            return checkpoint(region, hidden, *given, use_reentrant=reentrant)

        layer.forward = forward


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("enable", [around_the_call, inside_forward])
def test_gradient_checkpointing_of_transformers(enable, reentrant):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "vocab_size": 61}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "use_cache": False}

    def new_llama():
        torch.manual_seed(1)
        config = transformers.LlamaConfig(**sizes, **heads, tie_word_embeddings=True)
        return transformers.LlamaForCausalLM(config)

    def loss_of_llama(model, step):
        return model(input_ids=batch(step), labels=batch(step)).loss

    without = new_llama()
    without.train()
    plain, model = new_llama(), new_llama()
    for each in (plain, model):
        each.train()
        enable(each, reentrant)
    expected = plain_losses(plain, 12, loss=loss_of_llama)
    state = strata.torch.offload(model, lambda: loss_of_llama(model, 0), options())
    seen = offloaded_losses(state, model, 12, loss=loss_of_llama)
    assert seen == pytest.approx(expected, rel=2e-5)
    saved = []
    for each in (plain, model, without):
        bytes_saved, loss = saved_bytes(each, 12, loss_of_llama)
        loss.backward()
        saved.append(bytes_saved)
    assert saved[1] == saved[0] < saved[2] / 2, saved
    state.discard()
