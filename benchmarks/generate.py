#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds for each generated token: strata generate and Transformers' generate with its cache, in turns, on the same
model, prompts, types and threads. Both choose the most likely token. A token's time is the difference of a long and a
short run, so that loading and the prompt do not count.

usage: generate.py STRATA MODEL [--dtypes fp32,bf16] [--batches 1,8] [--prompt-tokens N] [--new-tokens N] [--rounds N]
                   [--threads N]

Needs torch and transformers in the Python that runs it.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
import transformers

SHORT = 4  # tokens of the short run


def prompts_of(tokenizer, count, tokens):
    """Texts of about so many tokens, all different."""
    words = "the harbour lay quiet under a low grey sky and the ships were at rest in its water".split()
    texts = []
    for i in range(count):
        text = ""
        while len(tokenizer(text)["input_ids"]) < tokens:
            text += (" " if text else "") + words[(len(text) * 7 + i * 5) % len(words)]
        texts.append(text)
    return texts


class Strata:
    def __init__(self, args, dtype, prompts, folder):
        path = os.path.join(folder, "prompts.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
        self.command = [args.strata, "generate", "--model", args.model, "--prompts-file", path, "--temperature", "0",
                        "--json", "--recipe", dtype, "--threads", str(args.threads),
                        "--micro-batch", str(len(prompts))]

    def seconds(self, new_tokens):
        begin = time.perf_counter()
        run = subprocess.run(self.command + ["--max-new-tokens", str(new_tokens)], capture_output=True, text=True,
                             check=True)
        elapsed = time.perf_counter() - begin
        counts = [json.loads(line)["new_tokens"] for line in run.stdout.splitlines()]
        if any(count != new_tokens for count in counts):
            raise SystemExit(f"a text ended early: {counts} new tokens (use another model or prompt)")
        return elapsed


class Transformers:
    def __init__(self, args, dtype, prompts, tokenizer):
        torch.set_num_threads(args.threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            args.model, dtype=torch.float32 if dtype == "fp32" else torch.bfloat16).eval()
        tokenizer.padding_side = "left"
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        self.inputs = tokenizer(prompts, return_tensors="pt", padding=True)
        self.inputs.pop("token_type_ids", None)

    def seconds(self, new_tokens):
        begin = time.perf_counter()
        with torch.inference_mode():
            self.model.generate(**self.inputs, do_sample=False, use_cache=True, min_new_tokens=new_tokens,
                                max_new_tokens=new_tokens)
        return time.perf_counter() - begin


def compare(args, dtype, batch, folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    prompts = prompts_of(tokenizer, batch, args.prompt_tokens)
    sides = [Strata(args, dtype, prompts, folder), Transformers(args, dtype, prompts, tokenizer)]
    sides[1].seconds(SHORT)  # its first run allocates
    passes = ([], [])
    for _ in range(args.rounds):
        for side, times in zip(sides, passes):
            times.append((side.seconds(args.new_tokens) - side.seconds(SHORT)) / (args.new_tokens - SHORT))
    ours, theirs = (statistics.median(times) for times in passes)
    ratios = [b / a for a, b in zip(*passes)]
    print(f"{dtype:5} {batch:5} {1e3 * ours:12.2f} {1e3 * theirs:12.2f} {batch / ours:12.0f} {batch / theirs:12.0f} "
          f"{statistics.median(ratios):8.2f}   {min(ratios):.2f} to {max(ratios):.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strata")
    parser.add_argument("model")
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {args.threads} threads")
    print("dtype texts   ms a pass: ours   theirs   tokens/s: ours     theirs    ratio   of rounds")
    with tempfile.TemporaryDirectory() as folder:
        for dtype in args.dtypes.split(","):
            for batch in args.batches.split(","):
                compare(args, dtype, int(batch), folder)


if __name__ == "__main__":
    main()
