#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of a Llama on a GPU: strata train with its state on the GPU, in host memory and on a drive, against
PyTorch (Transformers, bf16 by autocast, fused AdamW with fp32 weights, scaled_dot_product_attention), in one run. The
peak is that of a product of two 8192 x 8192 bf16 matrices by PyTorch in the same run.

usage: gpu_torch.py STRATA [--model H,F,L,A,K,V] [--batch N] [--length N] [--steps N] [--cases resident,host,nvme]
                    [--device-memory SIZE] [--host-memory SIZE] [--nvme DIR] [--compile] [--recompute] [--without-torch]
                    [--device cpu]

With --recompute both compute activations again in the backward; without it, each keeps what it would keep.
H hidden, F feed-forward, L layers, A heads, K key-value heads, V vocabulary. Operations of a step: 6 for each parameter and
token but those of the embedding, and attention; recomputation is not counted. Needs torch, numpy, safetensors and transformers.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import numpy
import torch
from safetensors.torch import save_file

WARM_UP = 3  # steps that do not count


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("strata")
    parser.add_argument("--model", default="2048,5632,16,16,8,32000")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--cases", default="resident,host,nvme")
    parser.add_argument("--device-memory", default="12GiB")
    parser.add_argument("--host-memory", default="3GiB")
    parser.add_argument("--nvme", default="")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--without-torch", action="store_true")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def make_model(folder, shape, device):
    hidden, inner, layers, heads, kv_heads, vocabulary = shape
    size = hidden // heads
    torch.manual_seed(0)

    def random(*dims):
        return (torch.randn(*dims, device=device) * 0.02).bfloat16().cpu()

    ones = torch.ones(hidden).bfloat16()
    tensors = {
        "model.embed_tokens.weight": random(vocabulary, hidden),
        "lm_head.weight": random(vocabulary, hidden),
        "model.norm.weight": ones.clone(),
    }
    for i in range(layers):
        block = f"model.layers.{i}."
        tensors[block + "input_layernorm.weight"] = ones.clone()
        tensors[block + "post_attention_layernorm.weight"] = ones.clone()
        for name, outputs in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            tensors[f"{block}self_attn.{name}_proj.weight"] = random(outputs * size, hidden)
        tensors[block + "self_attn.o_proj.weight"] = random(hidden, heads * size)
        for name in ("gate", "up"):
            tensors[f"{block}mlp.{name}_proj.weight"] = random(inner, hidden)
        tensors[block + "mlp.down_proj.weight"] = random(hidden, inner)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": size,
        "vocab_size": vocabulary,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return sum(tensor.numel() for tensor in tensors.values()) - vocabulary * hidden


def make_tokens(folder, count, vocabulary):
    draw = numpy.random.default_rng(1).integers(3, min(vocabulary, 65000), count)
    draw.astype("<u2").tofile(folder / "tokens.bin")


def seconds_of_strata(args, folder, case, options):
    """Step times and what the plan predicted. The run is killed after enough steps."""
    run = folder / f"run-{case}"
    command = [args.strata, "train", "--model", folder, "--data", folder / "tokens.bin", "--out", run]
    command += ["--device", args.device, "--recipe", "bf16", "--steps", "100000", "--lr", "1e-4"]
    command += ["--sequence-length", str(args.length), "--micro-batch", str(args.batch), *options]
    if args.recompute:
        command += ["--activations", "recompute"]
    with open(folder / f"{case}.log", "w+") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT)
        metrics = run / "metrics.jsonl"
        while process.poll() is None:
            if metrics.exists() and metrics.read_text().count('"loss"') >= args.steps:
                break
            time.sleep(0.05)
        process.kill()
        process.wait()
        log.seek(0)
        text = log.read()
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    if len(lines) < args.steps:
        raise SystemExit(f"gpu_torch.py: {case}: the run ended early:\n{text[-2000:]}")
    times = [json.loads(line)["step_s"] for line in lines[: args.steps]]
    plan = json.loads((run / "plan.json").read_text())
    keep = {"text": text, "predicted_s": plan["predicted_step_s"]}
    shutil.rmtree(run)
    return times[WARM_UP:], keep


def seconds_of_torch(args, folder, compiles):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    ).to(args.device)
    model.config.use_cache = False
    if args.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=args.device == "cuda")
    tokens = torch.from_numpy(numpy.fromfile(folder / "tokens.bin", "<u2").astype("int64"))
    forward = torch.compile(model) if compiles else model
    times = []
    for step in range(args.steps):
        begin = (step * args.batch * args.length) % (len(tokens) - args.batch * args.length)
        batch = tokens[begin : begin + args.batch * args.length].view(args.batch, -1).to(args.device)
        wait(args.device)
        start = time.perf_counter()
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = forward(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait(args.device)
        times.append(time.perf_counter() - start)
    return times[WARM_UP:]


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def peak_flops(device, size):
    x, w = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(12):
        wait(device)
        start = time.perf_counter()
        x @ w
        wait(device)
        times.append(time.perf_counter() - start)
    return 2.0 * size**3 / statistics.median(times[2:])


def report(name, times, flops, tokens, peak, more=""):
    middle = statistics.median(times)
    print(
        f"{name:<18} {1e3 * middle:9.1f} ms ({1e3 * min(times):.1f} to {1e3 * max(times):.1f}) "
        f"{tokens / middle:10.0f} tokens/s {1e-12 * flops / middle:8.1f} TFLOP/s {flops / middle / peak:6.3f} of the peak{more}",
        flush=True,
    )
    return middle


def main():
    args = arguments()
    shape = tuple(map(int, args.model.split(",")))
    hidden, _, layers, heads, _, vocabulary = shape
    tokens = args.batch * args.length
    folder = pathlib.Path(tempfile.mkdtemp(dir=args.nvme or None))
    try:
        counted = make_model(folder, shape, args.device)
        make_tokens(folder, max(4 * tokens, 200_000), vocabulary)
        flops = 6.0 * counted * tokens + 6.0 * layers * hidden * args.length * tokens
        peak = peak_flops(args.device, 8192 if args.device == "cuda" else 1024)
        where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
        recompute = ", activations computed again" if args.recompute else ""
        print(f"{where}, torch {torch.__version__}, peak {1e-12 * peak:.1f} TFLOP/s{recompute}")
        print(f"{(counted + vocabulary * hidden) / 1e9:.3f}B parameters, {args.batch} x {args.length} tokens a step", flush=True)
        yardsticks = [] if args.without_torch else [("PyTorch eager", False)]
        if args.compile:
            yardsticks.append(("torch.compile", True))
        torch_s = None
        for name, compiles in yardsticks:
            torch_s = report(name, seconds_of_torch(args, folder, compiles), flops, tokens, peak)
            torch.cuda.empty_cache()
        small = ["--device-memory", args.device_memory]
        places = {
            "resident": [],
            "host": [*small, "--offload", "host"],
            "nvme": [*small, "--host-memory", args.host_memory, "--nvme", folder, "--offload", "nvme"],
        }
        for case in filter(None, args.cases.split(",")):
            times, plan = seconds_of_strata(args, folder, case, places[case])
            middle = statistics.median(times)
            more = f", predicted {1e3 * plan['predicted_s']:.1f} ms ({plan['predicted_s'] / middle:.2f})"
            if torch_s is not None:
                more += f", {torch_s / middle:.2f} times the last PyTorch's speed"
            report(f"strata, {case}", times, flops, tokens, peak, more)
            for line in plan["text"].splitlines():
                if re.match(r"device +[0-9]|host +[0-9]|nvme +[0-9]", line):
                    print(f"    {line}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
