# SPDX-License-Identifier: Apache-2.0
"""A weight that is used where it is not in memory is an error that names it, never a silent NaN."""

import copy
import io
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import loss_of, new_model, options, plain_losses  # noqa: E402


def offloaded(**more):
    model = new_model()
    return model, strata.torch.offload(model, lambda: loss_of(model, 0), options(), **more)


def with_penalty(model, step):
    """From the third step on, it uses a weight outside of its module, as a fused loss does."""
    loss = loss_of(model, step)
    return loss + 0.1 * nn.functional.mse_loss(*pair(model)) if step >= 2 else loss


def pair(model):
    weight = model.blocks[1].up.weight
    return weight, torch.zeros_like(weight)


def step_of(model, state, step, loss):
    value = loss(model, step)
    value.backward()
    assert state.step(1e-2).applied
    return value.item()


def test_a_weight_that_a_later_step_uses_outside_of_its_module_is_named():
    expected = plain_losses(new_model(), 4)
    model, state = offloaded()
    losses = [step_of(model, state, step, with_penalty) for step in range(2)]
    words = r"blocks.1.up.weight: torch.nn.functional.mse_loss .* keep=\[\"blocks.1.up.weight\"\]"
    with pytest.raises(strata.UsageError, match=words):
        with_penalty(model, 2).backward()
    state.zero_grad()
    losses += [step_of(model, state, step, loss_of) for step in (2, 3)]
    assert losses == pytest.approx(expected, rel=2e-5)


def test_kept_weights_may_be_used_everywhere_after_the_forward_began():
    expected = plain_losses(new_model(), 4, loss=with_penalty)
    model, state = offloaded(keep=["blocks.1.up.weight"])
    with pytest.raises(strata.UsageError, match="before the model is called in this micro-batch"):
        model.blocks[1].up.weight.sum()
    losses = [step_of(model, state, step, with_penalty) for step in range(4)]
    assert losses == pytest.approx(expected, rel=2e-5)


USES = {
    "add": lambda w: w + 1,
    "a list": lambda w: torch.cat([torch.ones(1, 24), w]),
    "linear": lambda w: nn.functional.linear(torch.ones(1, 24), weight=w),
    "detach": lambda w: w.detach().sum(),
    "data": lambda w: w.data.mean(),
    "detach twice": lambda w: w.data.detach()[0] * 2,
    "item": lambda w: w[0, 0].item(),
    "numpy": lambda w: w.detach().numpy(),
    "tolist": lambda w: w.tolist(),
    "allclose": lambda w: torch.allclose(w, w),
    "in place": lambda w: w.detach().zero_(),
    "init": lambda w: nn.init.normal_(w),
    "assign": lambda w: setattr(w, "data", torch.zeros(72, 24)),
    "copy": lambda w: w.clone(),
    "dtype": lambda w: w.to(torch.bfloat16),
    "an item": lambda w: torch.zeros(2, 72, 24).__setitem__(0, w),
    "an item of data": lambda w: torch.zeros(72, 24).__setitem__(slice(None), w.data),
    "its item": lambda w: w.__setitem__(0, 1.0),
    "out": lambda w: torch.add(torch.ones(72, 24), w.data, out=torch.ones(72, 24)),
    "out of the first": lambda w: add_to_itself(torch.ones(72, 24), w.data),
    "storage": lambda w: w.storage(),
    "untyped storage": lambda w: w.data.untyped_storage(),
    "address": lambda w: w.data_ptr(),
    "class": lambda w: w.as_subclass(torch.Tensor),
    "shallow copy": lambda w: copy.copy(w.data),
    "save": lambda w: torch.save(w.data, io.BytesIO()),
    "keyword": lambda w: torch.sum(input=w),
    "set_ of it": lambda w: w.set_(torch.zeros(72, 24)),
    "set_ of data": lambda w: w.data.set_(torch.zeros(72, 24)),
    "new_tensor": lambda w: w.new_tensor(w),
    "new_tensor of data": lambda w: w.data.new_tensor(data=w),
    "from_dlpack": lambda w: torch.from_dlpack(w),
    "from_dlpack of NumPy": lambda w: np.from_dlpack(w),
    "array": lambda w: np.asarray(w),
    "rows": lambda w: list(w),
    "a value of a list": lambda w: torch.tensor([w[0, 0], w[0, 1]]),
    "a vector": lambda w: nn.utils.parameters_to_vector([w]),
    "from a vector": lambda w: nn.utils.vector_to_parameters(torch.ones(72 * 24), [w]),
    "foreach": lambda w: torch._foreach_norm([w]),
    "lerp": lambda w: torch.zeros(72, 24).lerp_(w, 0.5),
    "function": lambda w: Twice.apply(w),
    "a tensor in memory of others": lambda w: w.share_memory_(),
    "multiprocessing": lambda w: torch.multiprocessing.reductions.reduce_tensor(w),
    "histogram": lambda w: torch.histc(w),
    "what checks values": lambda w: torch.bernoulli(w),
    "parameter": lambda w: nn.Parameter(w),
    "parameter of data": lambda w: nn.Parameter(w.data),
    "copy of it": lambda w: copy.deepcopy(w),
    "pickle": lambda w: pickle.dumps(w),
    "torch.save": lambda w: torch.save({"w": w}, io.BytesIO()),
}


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        return w * 2


def add_to_itself(values, other):
    return torch.add(values, other, out=values)


# PyTorch asks no class before these, but finds no values.
RAW_USES = {
    "value of data": lambda w: setattr(torch.zeros(72, 24), "data", w.data),
    "set_": lambda w: torch.zeros(72, 24).set_(w.data),
    "dlpack": lambda w: torch.utils.dlpack.to_dlpack(w.data),
    "tensor": lambda w: torch.tensor(w.detach()).tolist(),
    "Tensor": lambda w: torch.Tensor(w.detach()).tolist(),
}


def data_of(values):
    """A tensor whose data are set to these."""
    tensor = torch.zeros(72, 24)
    tensor.data = values
    return tensor


# Those that read a parameter, too, with what they find: docs/embedding.md lists them.
SILENT_USES = {
    "data": data_of,
    "set_": lambda w: torch.zeros(72, 24).set_(w),
    "tensor": torch.tensor,
    "Tensor": torch.Tensor,
    "new": lambda w: torch.zeros(1).new(w),
    "new_tensor": lambda w: torch.zeros(1).new_tensor(w),
    "dlpack": lambda w: torch.from_dlpack(torch.utils.dlpack.to_dlpack(w)),
    "as_subclass": lambda w: torch.Tensor.as_subclass(w, torch.Tensor),
    "nested": lambda w: torch.nested.nested_tensor([w])[0],
    "vmap": lambda w: torch.vmap(lambda row: row * 2)(w),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("use", SILENT_USES)
def test_what_asks_no_class_finds_nan_in_a_parameter_and_is_an_error_for_what_detach_gives(use):
    model, state = offloaded()
    weight = model.blocks[0].up.weight
    assert SILENT_USES[use](weight).isnan().all()
    with pytest.raises((strata.UsageError, RuntimeError, BufferError, TypeError)):
        SILENT_USES[use](weight.data).tolist()


@pytest.mark.parametrize("use", RAW_USES)
def test_what_detach_gives_of_an_absent_weight_has_no_values(use):
    model, state = offloaded()
    data = model.blocks[0].up.weight.data
    assert data.device.type == "cpu" and data.to("cpu") is data and data.shape == (72, 24)
    assert torch.zeros_like(data).device.type == "cpu" and data.new_ones(3).sum() == 3
    with pytest.raises((RuntimeError, BufferError), match="meta|incompatible tensor type"):
        RAW_USES[use](model.blocks[0].up.weight)


@pytest.mark.parametrize("use", USES)
def test_every_read_of_an_absent_weight_is_an_error(use):
    model, state = offloaded()
    with pytest.raises(strata.UsageError, match="blocks.0.up.weight: .*state_dict"):
        USES[use](model.blocks[0].up.weight)
    weights = model.state_dict()
    assert all(type(w) is torch.Tensor and w.isfinite().all() for w in weights.values())
    loss_of(model, 0).backward()
    assert state.step(1e-2).applied


def test_what_reads_no_values_works():
    model, state = offloaded()
    weight = model.blocks[0].up.weight
    assert weight.shape == (72, 24) and weight.numel() == 72 * 24 and weight.is_leaf
    assert weight.dtype == torch.float32 and weight.device.type == "cpu" and weight.dim() == 2
    assert torch.zeros_like(weight).sum() == 0 and type(torch.empty_like(weight)) is torch.Tensor
    assert weight.to("cpu") is weight and isinstance(weight, nn.Parameter)
    assert weight in {weight}
    assert "not in memory" in str(weight) and "not in memory" in f"{weight.data}"
    assert sum(p.numel() * p.element_size() for p in model.parameters()) > 0
    state.restore()
    assert type(weight) is nn.Parameter and weight.sum().isfinite()


def test_compiled_blocks_have_the_losses_of_plain_ones():
    expected = plain_losses(new_model(), 3)
    model, state = offloaded()
    for block in model.blocks:
        block.compile(backend="aot_eager")
    losses = [step_of(model, state, step, loss_of) for step in range(3)]
    assert losses == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("is_before", [True, False])
def test_compiled_blocks_have_as_many_graphs_as_plain_ones(is_before):
    graphs = []

    def compile_blocks(model):
        for block in model.blocks:
            block.compile(backend=lambda graph, _: graphs.append(graph) or graph.forward)

    torch._dynamo.reset()
    plain = new_model()
    compile_blocks(plain)
    plain_losses(plain, 2)
    expected = len(graphs)
    torch._dynamo.reset()
    graphs.clear()
    model = new_model()
    if is_before:
        compile_blocks(model)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    if not is_before:
        compile_blocks(model)
    for step in range(2):
        step_of(model, state, step, loss_of)
    assert len(graphs) == expected > 0


def test_a_graph_of_the_whole_model_is_an_error_that_says_what_to_do():
    model, state = offloaded()
    tokens = torch.zeros(1, 10, dtype=torch.long)
    for call in (
        torch.compile(model, backend="eager", fullgraph=True),
        lambda tokens: torch.export.export(model, (tokens,), strict=True),
    ):
        with pytest.raises(Exception, match=r"offload: .*restore\(\) before.* without fullgraph=True"):
            call(tokens)
    loss_of(model, 0).backward()
    assert state.step(1e-2).applied


def test_a_device_among_the_options_is_refused_since_the_model_would_not_be_there():
    model = new_model()
    given = options(device="emulated", device_memory="64MiB")
    with pytest.raises(strata.ConfigError, match=r"give it as offload\(..., device=\)"):
        strata.torch.offload(model, lambda: loss_of(model, 0), given)
    assert all(parameter.numel() > 0 for parameter in model.parameters())
