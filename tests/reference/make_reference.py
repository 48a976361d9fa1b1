#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the model directories and reference results of tests/data/model.

Each case, a row of reference_cases.py, is a random-weight directory written by Transformers, trained for 20 AdamW steps in float64.
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

from reference_cases import CASES

STEPS, ACCUMULATE, ROWS = 20, 2, 2


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


def stored_name(name, case):
    """What the files call a parameter."""
    for prefix, stored in case.get("text", {}).items():
        if name.startswith(prefix):
            return stored + name.removeprefix(prefix)
    return name.removeprefix(case.get("bare", ""))


def name_as_in_memory(directory):
    """The tensors under the names that save_pretrained replaces, as some releases left them."""
    tensors = load_file(directory / "model.safetensors")
    save_file({"model." + name.replace("language_model.model.", "language_model."): tensor
               for name, tensor in tensors.items()},
              directory / "model.safetensors", metadata={"format": "pt"})


def trained(model, case):
    """The parameters under the names of the files; those of images are not trained."""
    named = list(model.named_parameters())
    text = tuple(case.get("text", ("",)))
    for name, parameter in named:
        parameter.requires_grad_(name.startswith(text))
    return [(stored_name(name, case), parameter) for name, parameter in named if parameter.requires_grad]


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


def spell_as_version_4(path, left_out=()):
    """Rewrites a config.json of Transformers 5 with the members of version 4."""
    config = json.loads(path.read_text())
    config["torch_dtype"] = config.pop("dtype")
    text = config.get("text_config", config)
    rope = text.pop("rope_parameters")
    layer_types = text.pop("layer_types", None)
    if "sliding_attention" in rope:
        text["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        text["sliding_window_pattern"] = text.pop("_sliding_window_pattern")
        rope = rope["full_attention"]
    text["rope_theta"] = rope.pop("rope_theta")
    text["rope_scaling"] = None if rope == {"rope_type": "default"} else rope
    for name in left_out:
        text.pop(name)
    config["transformers_version"] = "4.57.0"
    path.write_text(json.dumps(config, indent=2) + "\n")
    return layer_types


def make_tokens(case):
    """[STEPS, ACCUMULATE, ROWS, T + 1]: noisy walks over the vocabulary, so that there is something to learn."""
    generator = torch.Generator().manual_seed(1000 + case["seed"])
    vocabulary = case["config"].get_text_config().vocab_size
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
    named = trained(model, case)
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
        layer_types = spell_as_version_4(directory / "config.json", case.get("left_out", ()))
        again = case["model"].from_pretrained(directory).config.get_text_config()
        assert getattr(again, "layer_types", None) == layer_types, f"{name}: {again}"
    if "bare" in case:
        drop_prefix(directory, case["bare"])
    if "text" in case and "model.language_model." in case["text"].values():
        name_as_in_memory(directory)
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
    initial = {stored_name(name, case): tensor
               for name, tensor in load_model(directory, case, torch.float32).state_dict().items()}
    reference = load_file(directory / "reference.safetensors")
    losses, norms, arrays = train(directory, case, torch.float32, stored)

    def worst(found, wanted):
        return max(abs(a - b) / abs(b) for a, b in zip(found, wanted))

    def array_error(key):
        scale = reference[key].abs().max()
        if key.startswith("final."):
            scale = (reference[key] - initial[key[len("final."):]].float()).abs().max() or torch.tensor(1.0)
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
