# SPDX-License-Identifier: Apache-2.0
"""Families of models over a store: the losses of torch.optim.AdamW, and the same bits with all
state in memory and in the least memory that fits."""

import re

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import strata  # noqa: E402
import strata.torch  # noqa: E402
import test_torch_models  # noqa: E402
from torch_models import batch, loss_of, offloaded_losses, options, plain_losses  # noqa: E402

STEPS, IMAGE_TOKEN, PATCHES = 12, 60, 4
TEXT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 61}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "use_cache": False}


def llama():
    config = transformers.LlamaConfig(**TEXT, **HEADS, tie_word_embeddings=True)
    return transformers.LlamaForCausalLM(config)


def mixtral():
    """The experts of a layer are a list of modules, or since Transformers 5 packed in one parameter."""
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}
    config = transformers.MixtralConfig(**TEXT, **HEADS, **experts, tie_word_embeddings=False)
    model = transformers.MixtralForCausalLM(config)
    is_packed = any(parameter.dim() == 3 for parameter in model.parameters())
    assert is_packed == (transformers.__version__ >= "5")
    return model


def t5():
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_heads": 2, "vocab_size": 61}
    more = {"num_layers": 2, "decoder_start_token_id": 0, "dropout_rate": 0.0}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, **more))
    assert model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight
    return model


def llava():
    vision = transformers.CLIPVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2,
        image_size=8, patch_size=4, projection_dim=16,
    )  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config=vision,
        text_config=transformers.LlamaConfig(**TEXT, **HEADS),
        image_token_id=IMAGE_TOKEN,
        vision_feature_layer=-1,
    )
    return transformers.LlavaForConditionalGeneration(config)


def loss_of_text(model, step):
    return model(input_ids=batch(step), labels=batch(step)).loss


def loss_of_images(model, step):
    tokens = batch(step) % IMAGE_TOKEN
    tokens[:, 1 : 1 + PATCHES] = IMAGE_TOKEN
    labels = tokens.masked_fill(tokens == IMAGE_TOKEN, -100)
    pixels = torch.randn(len(tokens), 3, 8, 8, generator=torch.Generator().manual_seed(step))
    return model(input_ids=tokens, pixel_values=pixels, labels=labels).loss


FAMILIES = {
    "llama": (llama, loss_of_text),
    "mixtral": (mixtral, loss_of_text),
    "t5": (t5, loss_of_text),
    "llava": (llava, loss_of_images),
    "convolutional": (test_torch_models.Images, test_torch_models.loss_of_images),
    "leaves blocks out at random": (test_torch_models.Dropping, loss_of),
}


def bytes_of(text):
    """Those of a text such as 1.5MiB."""
    number, unit = re.fullmatch(r"([0-9.]+)([KM])iB", text).groups()
    return float(number) * {"K": 1 << 10, "M": 1 << 20}[unit]


def made(maker):
    torch.manual_seed(4)
    model = maker()
    model.train()
    torch.manual_seed(11)
    return model


def least(maker, loss, **more):
    """The least memory that fits, as the refusal names it."""
    model = made(maker)
    with pytest.raises(strata.DoesNotFit) as refused:
        strata.torch.offload(model, lambda: loss(model, 0), {**more, "host_memory": "1KiB"})
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    return re.search(r"needs at least ([0-9.]+ [KM]iB)", str(refused.value))[1].replace(" ", "")


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_those_of_adamw_and_bits_those_of_a_resident_store(family, tmp_path):
    maker, loss = FAMILIES[family]
    plain, fused = made(maker), made(maker)
    expected = plain_losses(plain, STEPS, 2, loss)
    of_fused = plain_losses(fused, STEPS, 2, loss, fused=True)
    # Where PyTorch's own two AdamW round apart by more, as a router that decides on rounding does.
    apart = max(abs(a - b) / b for a, b in zip(of_fused, expected))
    drive = options(2, nvme=str(tmp_path))
    seen, weights = [], []
    for given in (options(2), {**drive, "host_memory": least(maker, loss, **drive)}):
        model = made(maker)
        state = strata.torch.offload(model, lambda: loss(model, 0), given)
        seen.append(offloaded_losses(state, model, STEPS, 2, loss))
        weights.append(model.state_dict())
        on_drive = state.store.statistics().nvme_bytes_written
        assert on_drive > 0 if "nvme" in given else on_drive == 0
    assert seen[0] == pytest.approx(expected, rel=max(2e-5, 2 * apart))
    assert seen[1] == seen[0]
    assert set(weights[0]) == set(plain.state_dict())
    for name, values in weights[0].items():
        assert torch.equal(values, weights[1][name])
        if not name.endswith("k_proj.bias"):  # whose gradient is zero but for rounding
            of_plain = plain.state_dict()[name]
            rounding = (fused.state_dict()[name] - of_plain).abs().max().item()
            torch.testing.assert_close(values, of_plain, rtol=1e-3, atol=max(1e-4, 2 * rounding))


def test_an_adapter_over_a_frozen_base_on_a_drive_has_the_bits_of_one_in_memory(tmp_path):
    peft = pytest.importorskip("peft")
    made(llama).save_pretrained(tmp_path / "model")

    def adapted():
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"])
        return peft.get_peft_model(llama(), config)

    expected = plain_losses(made(adapted), STEPS, 1, loss_of_text)
    drive = options(nvme=str(tmp_path))
    drive["host_memory"] = least(adapted, loss_of_text, **drive)
    seen = []
    for given in (options(), drive):
        model = made(adapted)
        example = lambda: loss_of_text(model, 0)  # noqa: E731
        state = strata.torch.offload(model, example, given, weights=tmp_path / "model")
        seen.append(offloaded_losses(state, model, STEPS, 1, loss_of_text))
    assert seen[0] == pytest.approx(expected, rel=2e-5)
    assert seen[1] == seen[0]


@pytest.mark.parametrize("family", ["llama", "mixtral", "llava"])
def test_weights_come_from_a_directory_whatever_their_names_there(family, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    maker, loss = FAMILIES[family]
    made(maker).save_pretrained(tmp_path)
    expected = plain_losses(made(maker), 2, loss=loss)
    with accelerate.init_empty_weights():
        model = made(maker)
    model.tie_weights()
    example = lambda: loss(model, 0)  # noqa: E731
    state = strata.torch.offload(model, example, options(), weights=tmp_path)
    assert offloaded_losses(state, model, 2, loss=loss) == pytest.approx(expected, rel=2e-5)


PIECE = 4 << 20  # bytes of the pieces in which updates pass a drive


@pytest.mark.parametrize(
    "width, layers, vocabulary", [(128, 4, 61), (256, 8, 61), (512, 3, 61), (256, 4, 4096)]
)
def test_the_least_that_fits_is_two_whole_units_and_is_named(width, layers, vocabulary, tmp_path):
    """Two units with weights and gradients, each of the size of the largest: a block, or the matrix
    that embedding and head share; and for updates a piece of weights and of both moments. It does not
    depend on the number of blocks. The rest is vectors, alignment, and the text's two digits."""

    def maker():
        sizes = {"hidden_size": width, "intermediate_size": 3 * width, "vocab_size": vocabulary}
        config = transformers.LlamaConfig(
            **sizes, num_hidden_layers=layers, **HEADS, tie_word_embeddings=True
        )
        return transformers.LlamaForCausalLM(config)

    model = maker()
    block = 4 * sum(parameter.numel() for parameter in model.model.layers[0].parameters())
    unit = max(block, 4 * model.lm_head.weight.numel())
    named = bytes_of(least(maker, loss_of_text, **options(nvme=str(tmp_path))))
    rest = named - (2 * 2 * unit + 3 * min(unit, PIECE))
    assert 0 <= rest < 512 << 10, (unit, named)
    given = {**options(nvme=str(tmp_path)), "host_memory": f"{int(named) + 1}B"}
    model = made(maker)
    state = strata.torch.offload(model, lambda: loss_of_text(model, 0), given)
    loss_of_text(model, 0).backward()
    assert state.step(1e-2).applied and state.store.statistics().host_bytes <= named + 1
