# SPDX-License-Identifier: Apache-2.0
"""Models on the meta device, weights from files, adapters over a frozen base, bf16 and autocast."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import batch  # noqa: E402

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "vocab_size": 61}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "use_cache": False}


def llama():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SIZES, **HEADS, tie_word_embeddings=True)
    return transformers.LlamaForCausalLM(config)


def loss_of_llama(model, step):
    return model(input_ids=batch(step), labels=batch(step)).loss


def empty_llama():
    accelerate = pytest.importorskip("accelerate")
    with accelerate.init_empty_weights():
        model = llama()
    model.tie_weights()
    return model


def trained(model, steps=12, context=None, **more):
    state = strata.torch.offload(model, lambda: loss_of_llama(model, 0), {"threads": 1}, **more)
    optimizer = strata.torch.Optimizer(state, lr=1e-2)
    losses = []
    for step in range(steps):
        with context() if context else torch.enable_grad():
            loss = loss_of_llama(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, state


def adamw_losses(model, steps=12, context=None):
    parameters = [p for p in model.parameters() if p.requires_grad]
    copies = [p.detach().float().clone().requires_grad_() for p in parameters]
    optimizer = torch.optim.AdamW(copies, lr=1e-2)
    losses = []
    for step in range(steps):
        with context() if context else torch.enable_grad():
            loss = loss_of_llama(model, step)
        loss.backward()
        losses.append(loss.item())
        for copy, parameter in zip(copies, parameters):
            copy.grad, parameter.grad = parameter.grad.float(), None
        optimizer.step()
        for copy, parameter in zip(copies, parameters):
            parameter.data = copy.detach().to(parameter.dtype)
    return losses


def test_a_model_without_weights_is_filled_from_its_directory(tmp_path):
    llama().save_pretrained(tmp_path / "model", max_shard_size="20KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    model = empty_llama()
    assert all(p.device.type == "meta" for p in model.parameters())
    losses, state = trained(model, weights=tmp_path / "model")
    assert losses == pytest.approx(adamw_losses(llama()), rel=2e-5)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with pytest.raises(strata.ConfigError, match="meta device and has no value"):
        trained(empty_llama())


def test_weights_of_bf16_have_exact_masters(tmp_path):
    expected = adamw_losses(llama().bfloat16(), 8)
    model = llama().bfloat16()
    losses, state = trained(model, 8)
    assert losses == pytest.approx(expected, rel=2e-3)  # sums of bf16 products differ
    weights = model.state_dict()
    masters = state.state_dict()
    name = "model.norm.weight"
    assert weights[name].dtype == torch.bfloat16 and masters[name].dtype == torch.float32
    assert torch.equal(weights[name], masters[name].bfloat16())
    assert not torch.equal(weights[name].float(), masters[name])
    model.model.norm.weight.requires_grad_(False)  # for a while
    model.load_state_dict({"lm_head.weight": weights["lm_head.weight"]}, strict=False)
    assert torch.equal(state.state_dict()[name], masters[name])
    model.model.norm.weight.requires_grad_(True)
    with pytest.raises(strata.ConfigError, match="torch.float32, while others are torch.bfloat16"):
        model = llama().bfloat16()
        model.model.norm.float()
        trained(model)


def test_autocast_has_gradients_of_float32():
    def autocast():
        return torch.autocast("cpu", torch.bfloat16)

    losses, state = trained(llama(), context=autocast)
    expected = adamw_losses(llama(), context=autocast)
    assert losses == pytest.approx(expected, rel=2e-4)  # a last bit of a weight may round to bf16
    assert state.state_dict()["model.norm.weight"].dtype == torch.float32


def test_adapters_are_trained_over_a_frozen_base_from_its_files(tmp_path):
    peft = pytest.importorskip("peft")
    llama().save_pretrained(tmp_path / "model")

    def adapted(model):
        torch.manual_seed(2)
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], lora_dropout=0.0)
        return peft.get_peft_model(model, config)

    expected = adamw_losses(adapted(llama()), 6)
    model = adapted(llama())
    losses, state = trained(model, 6, weights=tmp_path / "model")
    assert losses == pytest.approx(expected, rel=2e-5)
    assert losses[-1] != losses[0]
    assert all("lora_" in name for name in state.state_dict())
    model.save_pretrained(tmp_path / "adapter")
    base = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model")
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    with torch.no_grad():
        torch.testing.assert_close(loss_of_llama(again, 50), loss_of_llama(model, 50))


def test_adapters_without_values_are_named_and_get_them(tmp_path):
    peft = pytest.importorskip("peft")
    llama().save_pretrained(tmp_path / "model")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], lora_dropout=0.0)
    model = peft.get_peft_model(empty_llama(), config)
    with pytest.raises(strata.ConfigError, match="lora_A.* on the meta device.*reset_lora_parameters"):
        trained(model, weights=tmp_path / "model")
    for module in model.modules():  # as docs/embedding.md has it
        if isinstance(module, peft.tuners.lora.LoraLayer):
            module.lora_A.to_empty(device="cpu"), module.lora_B.to_empty(device="cpu")
            module.reset_lora_parameters("default", True)
    losses, _ = trained(model, 6, weights=tmp_path / "model")
    with torch.no_grad():
        expected = loss_of_llama(llama(), 0).item()
    assert losses[0] == pytest.approx(expected, rel=2e-5) and losses[-1] != losses[0]


def test_weights_that_are_not_tied_are_named(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    llama().save_pretrained(tmp_path)
    with accelerate.init_empty_weights():
        model = llama()
    model.lm_head.weight = torch.nn.Parameter(torch.empty(61, 32, device="meta"))
    with pytest.raises(strata.ConfigError, match=r"no tensors lm_head.weight.*call tie_weights\(\)"):
        trained(model, weights=tmp_path)


def empty(maker):
    accelerate = pytest.importorskip("accelerate")
    with accelerate.init_empty_weights():
        model = maker()
    model.tie_weights()
    model.train()
    return model


def rewritten(directory, change):
    """Changes the tensors of the directory's file."""
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = safetensors.load_file(directory / "model.safetensors")
    safetensors.save_file(change(tensors), directory / "model.safetensors")
    return directory


PROJECTION = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize("dtype, named", [(torch.float8_e4m3fn, "F8_E4M3"), (torch.int8, "I8")])
def test_quantized_weights_are_refused(dtype, named, tmp_path):
    llama().save_pretrained(tmp_path)
    change = lambda tensors: {**tensors, PROJECTION: tensors[PROJECTION].to(dtype)}  # noqa: E731
    rewritten(tmp_path, change)
    for model in (llama(), empty(llama)):
        with pytest.raises(strata.ConfigError, match=f"{PROJECTION} in .* is {named} .*bfloat16"):
            trained(model, weights=tmp_path)


def test_weights_that_the_directory_lacks_are_named(tmp_path):
    llama().save_pretrained(tmp_path)
    before = llama().state_dict()
    rewritten(tmp_path, lambda all: {k: v for k, v in all.items() if "layers.1.mlp" not in k})
    with pytest.raises(strata.ConfigError, match=r"no tensors model.layers.1.mlp.*, .*new=\["):
        trained(llama(), weights=tmp_path)
    for wrong in ("model.layers.1.mlp", ["model.layers.7"]):
        with pytest.raises(strata.ConfigError, match="new: .*list of names"):
            trained(llama(), weights=tmp_path, new=wrong)
    model = llama()
    _, state = trained(model, 0, weights=tmp_path, new=["model.layers.1.mlp"])
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    with pytest.raises(strata.ConfigError, match="mlp.*meta device and has no value"):
        trained(empty(llama), weights=tmp_path, new=["model.layers.1.mlp"])


class Towers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.second = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    def forward(self, x):
        return self.first(x) + self.second(x)


def test_a_tensor_that_may_be_either_of_two_parameters_is_refused(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, x = Towers(), torch.ones(1, 4)
    safetensors.save_file(model.first.state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(strata.ConfigError, match=r"0\.\w+ may be first.0.* or second.0"):
        strata.torch.offload(model, lambda: model(x).sum(), weights=tmp_path)


def test_a_model_of_no_weights_that_does_not_fit_stays_so(tmp_path):
    llama().save_pretrained(tmp_path)
    model = empty(llama)
    before = dict(model.named_parameters())
    given = {"threads": 1, "host_memory": "1KiB", "nvme": str(tmp_path)}
    with pytest.raises(strata.DoesNotFit):
        strata.torch.offload(model, lambda: loss_of_llama(model, 0), given, weights=tmp_path)
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    assert all(parameter.device.type == "meta" for parameter in model.parameters())
    losses, _ = trained(model, weights=tmp_path)
    assert losses == pytest.approx(adamw_losses(llama()), rel=2e-5)


class Normed(torch.nn.Module):
    """Buffers that are saved, one shared by two modules, and one that is not saved."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.linear = torch.nn.Linear(8, 8)
        self.first, self.second = torch.nn.BatchNorm1d(8), torch.nn.BatchNorm1d(8)
        self.second.running_mean = self.first.running_mean
        self.register_buffer("scale", torch.ones(8), persistent=False)

    def forward(self, x):
        return (self.scale * self.second(self.first(self.linear(x)))).square().mean()


@pytest.mark.parametrize("is_empty", [False, True])
def test_buffers_are_read_from_the_directory(is_empty, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    saved, x = Normed(), torch.randn(4, 8)
    for _ in range(3):
        saved(3 + x)
    safetensors.save_model(saved, tmp_path / "model.safetensors")
    model = Normed()
    if is_empty:
        model.first.to_empty(device="meta"), model.second.to_empty(device="meta")
        model.second.running_mean = model.first.running_mean
    before = dict(model.named_buffers())
    assert before["scale"].device.type == "cpu"

    def offload(**options):
        given = {"threads": 1, **options}
        return strata.torch.offload(model, lambda: model(x), given, weights=tmp_path)

    with pytest.raises(strata.DoesNotFit):
        offload(host_memory="1KiB")
    assert all(buffer is before[name] for name, buffer in model.named_buffers())
    offload()
    assert model.second.running_mean is model.first.running_mean
    assert model.first.num_batches_tracked == 3
    assert model.eval()(x) == saved.eval()(x)


def test_buffers_that_the_directory_lacks_or_has_in_another_shape_are_named(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, x = Normed(), torch.randn(4, 8)
    example = lambda: model(x)  # noqa: E731
    safetensors.save_model(model, tmp_path / "model.safetensors")
    rewritten(tmp_path, lambda all: {k: v for k, v in all.items() if k != "first.running_var"})
    with pytest.raises(strata.ConfigError, match="no tensors first.running_var"):
        strata.torch.offload(model, example, {"threads": 1}, weights=tmp_path)
    rewritten(tmp_path, lambda all: {**all, "first.running_var": torch.ones(3)})
    with pytest.raises(strata.ConfigError, match=r"first.running_var: shape \(3,\) in the file, \(8,\)"):
        strata.torch.offload(model, example, {"threads": 1}, weights=tmp_path)
    rewritten(tmp_path, lambda all: {k: v for k, v in all.items() if k != "first.running_var"})
    strata.torch.offload(model, example, {"threads": 1}, weights=tmp_path, new=["first.running_var"])
