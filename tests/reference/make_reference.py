#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the model directories and reference results of tests/data/model.

Each case is a random-weight directory written by Transformers, trained for 20 AdamW steps in float64.
reference.json has settings, tokens, losses and gradient norms; reference.safetensors has the logits of
three positions before training, every gradient of the first step, and the weights after the last.

    python3 tests/reference/make_reference.py [--out tests/data/model] [--case NAME] [--float32]

Needs torch, transformers and safetensors. --float32 trains in float32 instead and prints how far that is
from the stored float64 results: what a tolerance can be measured against.
"""
import argparse
import json
import pathlib
import re
import shutil
import tomllib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config,
                          GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Olmo2Config, Olmo2ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

STEPS, ACCUMULATE, ROWS = 20, 2, 2

# scale: standard deviation of the matrices. Larger than a fresh model's, so that every part matters.
# spelling=4: config.json as Transformers 4 wrote it. toml: a file of --config, for what is trained how.
CASES = {
    "gqa_untied": dict(
        model=LlamaForCausalLM, length=24, clip=2.0, scale=0.12, seed=22,
        config=LlamaConfig(
            hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=97, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "mha_tied_llama3": dict(
        model=LlamaForCausalLM, length=33, clip=1.4, scale=0.12, seed=12,
        config=LlamaConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=4, vocab_size=131, max_position_embeddings=128, rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="llama3", rope_theta=1000.0, factor=4.0, low_freq_factor=1.0,
                                 high_freq_factor=4.0, original_max_position_embeddings=48))),
    "five_heads": dict(
        model=LlamaForCausalLM, length=17, clip=2.3, scale=0.1, seed=13,
        config=LlamaConfig(
            hidden_size=40, intermediate_size=72, num_hidden_layers=3, num_attention_heads=5,
            num_key_value_heads=5, head_dim=12, vocab_size=997, max_position_embeddings=64,
            rms_norm_eps=1e-5, tie_word_embeddings=True)),
    "sharded_bf16": dict(
        model=LlamaForCausalLM, length=20, clip=2.3, scale=0.12, seed=14, dtype=torch.bfloat16,
        shard_size="24KB",
        config=LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0))),
    "window": dict(
        model=MistralForCausalLM, length=21, clip=1.2, scale=0.15, seed=15,
        config=MistralConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=53, max_position_embeddings=64, rms_norm_eps=1e-5,
            sliding_window=6, tie_word_embeddings=False)),
    "llama_biases": dict(
        model=LlamaForCausalLM, length=18, clip=1.1, scale=0.15, seed=16,
        config=LlamaConfig(
            hidden_size=16, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=4, head_dim=16, vocab_size=59, max_position_embeddings=64,
            rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    "gpt2": dict(
        model=GPT2LMHeadModel, length=21, clip=1.2, scale=0.12, seed=20, shard_size="60KB",
        config=GPT2Config(
            n_embd=36, n_layer=2, n_head=3, n_positions=40, vocab_size=61, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "gpt2_bare": dict(
        model=GPT2LMHeadModel, length=17, clip=0.95, scale=0.15, seed=21, bare="transformer.",
        config=GPT2Config(
            n_embd=20, n_layer=1, n_head=4, n_positions=24, n_inner=52, vocab_size=53, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, tie_word_embeddings=False,
            activation_function="gelu_pytorch_tanh")),
    "phi3": dict(
        model=Phi3ForCausalLM, length=20, clip=2.0, scale=0.13, seed=23, dtype=torch.bfloat16,
        config=Phi3Config(
            hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=61, max_position_embeddings=128, sliding_window=7,
            original_max_position_embeddings=64, pad_token_id=0, bos_token_id=0, eos_token_id=0,
            rope_parameters=dict(rope_type="longrope", rope_theta=1000.0, original_max_position_embeddings=64,
                                 short_factor=[1.0, 1.1, 1.25, 1.5], long_factor=[1.0, 2.0, 3.5, 6.0]))),
    "phi3_long": dict(
        model=Phi3ForCausalLM, length=19, clip=2.4, scale=0.13, seed=24,
        config=Phi3Config(
            hidden_size=40, intermediate_size=36, num_hidden_layers=2, num_attention_heads=5,
            num_key_value_heads=5, vocab_size=67, max_position_embeddings=48, tie_word_embeddings=True,
            original_max_position_embeddings=12, pad_token_id=0, bos_token_id=0, eos_token_id=0,
            rope_parameters=dict(rope_type="longrope", rope_theta=100.0, original_max_position_embeddings=12,
                                 partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.3],
                                 long_factor=[1.2, 2.0, 3.5]))),
    "float16": dict(
        model=LlamaForCausalLM, length=22, clip=1.9, scale=0.13, seed=18, dtype=torch.float16,
        config=LlamaConfig(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=59, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "fp8": dict(
        model=LlamaForCausalLM, length=18, clip=2.0, scale=0.13, seed=19, dtype=torch.bfloat16, blocks=(16, 12),
        config=LlamaConfig(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=59, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "qwen2": dict(
        model=Qwen2ForCausalLM, length=19, clip=2.0, scale=0.15, seed=17,
        config=Qwen2Config(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=67, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=True)),
    "qwen2_windows": dict(
        model=Qwen2ForCausalLM, length=22, clip=1.3, scale=0.15, seed=18, spelling=4,
        config=Qwen2Config(
            hidden_size=20, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=True, use_sliding_window=True, sliding_window=7, max_window_layers=1)),
    "mistral_bf16": dict(
        model=MistralForCausalLM, length=17, clip=2.1, scale=0.15, seed=19, dtype=torch.bfloat16, spelling=4,
        config=MistralConfig(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, vocab_size=67, max_position_embeddings=64, rms_norm_eps=1e-5,
            sliding_window=None, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "yarn_multi_query": dict(
        model=LlamaForCausalLM, length=40, clip=1.2, scale=0.15, seed=20,
        config=LlamaConfig(
            hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=71, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
            rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, beta_fast=4.0, beta_slow=0.5,
                                 original_max_position_embeddings=16))),
    "smollm": dict(
        model=LlamaForCausalLM, length=19, clip=2.5, scale=0.15, seed=21, spelling=4,
        config=LlamaConfig(
            hidden_size=36, intermediate_size=24, num_hidden_layers=2, num_attention_heads=9,
            num_key_value_heads=3, vocab_size=73, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=True)),
    "tinyllama": dict(
        model=LlamaForCausalLM, length=18, clip=1.4, scale=0.15, seed=23,
        config=LlamaConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=8,
            num_key_value_heads=1, vocab_size=59, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "smollm_mha": dict(
        model=LlamaForCausalLM, length=22, clip=1.6, scale=0.15, seed=32, dtype=torch.bfloat16, spelling=4,
        config=LlamaConfig(
            hidden_size=28, intermediate_size=37, num_hidden_layers=2, num_attention_heads=7,
            num_key_value_heads=7, vocab_size=83, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=130000.0))),
    "tinyllama_bf16": dict(
        model=LlamaForCausalLM, length=15, clip=2.4, scale=0.14, seed=33, dtype=torch.bfloat16, spelling=4,
        config=LlamaConfig(
            hidden_size=40, intermediate_size=27, num_hidden_layers=2, num_attention_heads=10,
            num_key_value_heads=2, vocab_size=101, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "groups": dict(
        model=LlamaForCausalLM, length=20, clip=1.8, scale=0.14, seed=34, toml=r"""
freeze = 'model\.layers\.0\.mlp\.(gate|up)_proj\.weight'
[[group]]
match = '(.*embed_tokens|lm_head)\.weight'
lr_factor = 0.1
weight_decay = 0.5
[[group]]
match = 'model\.layers\.1\.self_attn\.[kq]_proj\.weight'
lr_factor = 0.0
[[group]]
match = 'model\.layers\.1\..*'
lr_factor = 3.0
weight_decay = 0.0
[[group]]
match = '.*\.v_proj\.weight'
frozen = true
""",
        config=LlamaConfig(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=59, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "olmo2": dict(
        model=Olmo2ForCausalLM, length=21, clip=1.8, scale=0.15, seed=24,
        config=Olmo2Config(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=67, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=False)),
    "olmo2_wide": dict(
        model=Olmo2ForCausalLM, length=17, clip=2.3, scale=0.15, seed=25, spelling=4,
        config=Olmo2Config(
            hidden_size=20, intermediate_size=28, num_hidden_layers=3, num_attention_heads=5,
            num_key_value_heads=5, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=5e5))),
    "qwen3": dict(
        model=Qwen3ForCausalLM, length=19, clip=1.9, scale=0.15, seed=26,
        config=Qwen3Config(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, head_dim=14, vocab_size=67, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=True)),
    "qwen3_windows": dict(
        model=Qwen3ForCausalLM, length=23, clip=0.8, scale=0.15, seed=27, spelling=4,
        config=Qwen3Config(
            hidden_size=16, intermediate_size=28, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=6, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=False, attention_bias=True, use_sliding_window=True, sliding_window=5,
            max_window_layers=2, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "gemma2": dict(
        model=Gemma2ForCausalLM, length=22, clip=1.9, scale=0.15, seed=28,
        config=Gemma2Config(
            hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3,
            num_key_value_heads=1, head_dim=10, vocab_size=61, max_position_embeddings=64, sliding_window=6,
            query_pre_attn_scalar=7, attn_logit_softcapping=2.0, final_logit_softcapping=5.0)),
    "gemma2_untied": dict(
        model=Gemma2ForCausalLM, length=18, clip=1.6, scale=0.15, seed=29, spelling=4,
        config=Gemma2Config(
            hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, vocab_size=67, max_position_embeddings=64, sliding_window=4,
            query_pre_attn_scalar=8, tie_word_embeddings=False)),
    "gemma3": dict(
        model=Gemma3ForCausalLM, length=23, clip=2.1, scale=0.15, seed=30,
        config=Gemma3TextConfig(
            hidden_size=24, intermediate_size=32, num_hidden_layers=3, num_attention_heads=3,
            num_key_value_heads=1, head_dim=10, vocab_size=61, max_position_embeddings=64, sliding_window=6,
            query_pre_attn_scalar=7, final_logit_softcapping=4.0,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0)))),
    "gemma3_pattern": dict(
        model=Gemma3ForCausalLM, length=18, clip=2.7, scale=0.15, seed=31, spelling=4,
        config=Gemma3TextConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=2,
            num_key_value_heads=2, head_dim=8, vocab_size=59, max_position_embeddings=64, sliding_window=5,
            query_pre_attn_scalar=8, sliding_window_pattern=3)),
}


def norm_is_distance(name, case):
    """Whether a vector is the weight of a norm that multiplies with 1 + weight."""
    return "Gemma" in case["model"].__name__ and name.endswith("norm.weight")


def make_model(case):
    torch.manual_seed(case["seed"])
    model = case["model"]._from_config(case["config"], attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                middle = 0 if name.endswith("bias") or norm_is_distance(name, case) else 1
                parameter.copy_(middle + 0.2 * torch.randn_like(parameter))
            else:
                parameter.copy_(case["scale"] * torch.randn_like(parameter))
    return model.to(case.get("dtype", torch.float32))


def drop_prefix(directory, prefix):
    """The tensors of the inner model under its own names, as some published files have them."""
    tensors = load_file(directory / "model.safetensors")
    save_file({name.removeprefix(prefix): tensor for name, tensor in tensors.items()},
              directory / "model.safetensors", metadata={"format": "pt"})


def quantize(directory, blocks):
    """The matrices of the blocks of layers as F8_E4M3 with a scale for each block of rows and columns."""
    tensors = load_file(directory / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        matrix = tensors[name].float()
        rows, columns = (-(-extent // block) for extent, block in zip(matrix.shape, blocks))
        scales = torch.empty(rows, columns)
        for row in range(rows):
            for column in range(columns):
                part = matrix[row * blocks[0]:(row + 1) * blocks[0], column * blocks[1]:(column + 1) * blocks[1]]
                scales[row, column] = part.abs().max() / 448
                part /= scales[row, column]
        tensors[name] = matrix.to(torch.float8_e4m3fn)
        tensors[name + "_scale_inv"] = scales
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic",
                                         weight_block_size=list(blocks))
    (directory / "config.json").write_text(json.dumps(config, indent=2))


def dequantized(directory, case, dtype):
    """A model with the weights of an FP8 directory, times their scales in float32."""
    tensors = load_file(directory / "model.safetensors")
    weights = {}
    for name, tensor in tensors.items():
        if name.endswith("_scale_inv"):
            continue
        weights[name] = tensor.float()
        if tensor.dtype == torch.float8_e4m3fn:
            scales = tensors[name + "_scale_inv"]
            for dimension, block in enumerate(case["blocks"]):
                scales = scales.repeat_interleave(block, dim=dimension)
            weights[name] *= scales[:tensor.shape[0], :tensor.shape[1]]
    model = case["model"]._from_config(case["config"], attn_implementation="eager", dtype=dtype)
    model.load_state_dict(weights, strict=True)
    return model


def load_model(directory, case, dtype):
    if "blocks" in case:
        return dequantized(directory, case, dtype)
    return case["model"].from_pretrained(directory, dtype=dtype, attn_implementation="eager")


def spell_as_version_4(path):
    """Rewrites a config.json of Transformers 5 with the members of version 4."""
    config = json.loads(path.read_text())
    config["torch_dtype"] = config.pop("dtype")
    rope = config.pop("rope_parameters")
    layer_types = config.pop("layer_types", None)
    if "sliding_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = config.pop("_sliding_window_pattern")
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope == {"rope_type": "default"} else rope
    config["transformers_version"] = "4.57.0"
    path.write_text(json.dumps(config, indent=2) + "\n")
    return layer_types


def make_tokens(case):
    """[STEPS, ACCUMULATE, ROWS, T + 1]: noisy walks over the vocabulary, so that there is something to learn."""
    generator = torch.Generator().manual_seed(1000 + case["seed"])
    vocabulary = case["config"].vocab_size
    shape = (STEPS, ACCUMULATE, ROWS, case["length"] + 1)
    start = torch.randint(vocabulary, shape[:-1] + (1,), generator=generator)
    walk = (start + 7 * torch.arange(shape[-1])) % vocabulary
    noise = torch.randint(vocabulary, shape, generator=generator)
    tokens = torch.where(torch.rand(shape, generator=generator) < 0.2, noise, walk)
    targets = tokens[..., 1:].clone()
    targets[torch.rand(targets.shape, generator=generator) < 0.1] = -1
    return tokens[..., :-1].contiguous(), targets


def groups(named, case, settings):
    """PyTorch's parameter groups; those of a case that lists none are matrices and vectors."""
    given = tomllib.loads(case.get("toml", ""))
    made = []
    for name, parameter in named:
        group = next((g for g in given.get("group", []) if re.fullmatch(g["match"], name)), {})
        if group.get("frozen") or re.fullmatch(given.get("freeze", ""), name):
            parameter.requires_grad_(False)
            continue
        decay = group.get("weight_decay", settings["weight_decay"])
        made.append(dict(params=[parameter], lr=settings["lr"] * group.get("lr_factor", 1.0),
                         weight_decay=decay if parameter.dim() >= 2 else 0.0))
    return made


def train(directory, case, dtype, settings):
    model = load_model(directory, case, dtype)
    model.train()
    tokens, targets = make_tokens(case)
    named = [(name.removeprefix(case.get("bare", "")), parameter) for name, parameter in model.named_parameters()]
    optimizer = torch.optim.AdamW(groups(named, case, settings), lr=settings["lr"],
                                  betas=tuple(settings["betas"]), eps=settings["eps"], foreach=False)
    positions = settings["logit_positions"]
    with torch.no_grad():
        arrays = {"logits": model(input_ids=tokens[0, 0]).logits[:, positions, :].transpose(0, 1)}
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        count = int((targets[step] >= 0).sum())
        total = 0.0
        for micro in range(ACCUMULATE):
            logits = model(input_ids=tokens[step, micro]).logits
            loss = F.cross_entropy(logits.flatten(0, 1), targets[step, micro].flatten(),
                                   ignore_index=-1, reduction="sum") / count
            loss.backward()
            total += float(loss.detach())
        if step == 0:
            for name, parameter in named:
                if parameter.requires_grad:
                    arrays["grad." + name] = parameter.grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"], foreach=False)
        optimizer.step()
        losses.append(total)
        norms.append(float(norm))
    for name, parameter in named:
        arrays["final." + name] = parameter.detach()
    return losses, norms, {name: array.to(torch.float32).contiguous() for name, array in arrays.items()}


def settings_of(case):
    length = case["length"]
    return dict(steps=STEPS, accumulate=ACCUMULATE, rows=ROWS, length=length, lr=5e-3, betas=[0.9, 0.95],
                eps=1e-8, weight_decay=0.1, clip=case["clip"], logit_positions=[0, length // 2, length - 1])


def write_case(name, case, out):
    directory = out / name
    shutil.rmtree(directory, ignore_errors=True)
    save = dict(max_shard_size=case["shard_size"]) if "shard_size" in case else {}
    make_model(case).save_pretrained(directory, **save)
    if "blocks" in case:
        quantize(directory, case["blocks"])
    if case.get("spelling") == 4:
        layer_types = spell_as_version_4(directory / "config.json")
        again = case["model"].from_pretrained(directory).config
        assert getattr(again, "layer_types", None) == layer_types, f"{name}: {again}"
    if "bare" in case:
        drop_prefix(directory, case["bare"])
    settings = settings_of(case)
    losses, norms, arrays = train(directory, case, torch.float64, settings)
    bites = sum(norm > settings["clip"] for norm in norms)
    assert 3 <= bites <= STEPS - 3, f"{name}: clipping at {settings['clip']} bites {bites} times: {norms}"
    assert losses[-1] < losses[0] - 0.2, f"{name}: nothing is learnt: {losses}"
    tokens, targets = make_tokens(case)
    reference = dict(settings, loss=losses, grad_norm=norms, tokens=tokens.flatten().tolist(),
                     targets=targets.flatten().tolist())
    if "toml" in case:
        reference["toml"] = case["toml"]
    (directory / "reference.json").write_text(json.dumps(reference))
    save_file(arrays, directory / "reference.safetensors", metadata={"format": "pt"})
    print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, clipping bites {bites} of {STEPS}, "
          f"{sum(p.stat().st_size for p in directory.iterdir())} bytes")


def compare_float32(name, case, out):
    directory = out / name
    stored = json.loads((directory / "reference.json").read_text())
    initial = load_model(directory, case, torch.float32).state_dict()
    reference = load_file(directory / "reference.safetensors")
    losses, norms, arrays = train(directory, case, torch.float32, stored)

    def worst(found, wanted):
        return max(abs(a - b) / abs(b) for a, b in zip(found, wanted))

    def array_error(key):
        scale = reference[key].abs().max()
        if key.startswith("final."):
            name = key[len("final."):]
            name = name if name in initial else case["bare"] + name
            scale = (reference[key] - initial[name].float()).abs().max() or torch.tensor(1.0)
        return float((arrays[key] - reference[key]).abs().max() / scale)

    errors = {kind: max(array_error(key) for key in reference if key.startswith(kind))
              for kind in ("logits", "grad.", "final.")}
    print(f"{name}: float32 against float64: loss {worst(losses, stored['loss']):.1e}, "
          f"norm {worst(norms, stored['grad_norm']):.1e}, "
          + ", ".join(f"{kind} {error:.1e}" for kind, error in errors.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "data" / "model")
    parser.add_argument("--case", choices=sorted(CASES))
    parser.add_argument("--float32", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, case in CASES.items():
        if arguments.case in (None, name):
            (compare_float32 if arguments.float32 else write_case)(name, case, arguments.out)


if __name__ == "__main__":
    main()
