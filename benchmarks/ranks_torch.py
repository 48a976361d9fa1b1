#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of two ranks against PyTorch's DistributedDataParallel and fully_shard over Gloo.

    benchmarks/ranks_torch.py build/bindings/cli/strata [--rounds 3] [--steps 8] [--accumulate 4]
        [--hidden 512] [--layers 8]

Each rank is a process of one thread that trains the same Llama in fp32 on rows of 128 tokens, everything in
memory. Rounds alternate; figures are medians of steps, but for the first two, and then of rounds. Needs
torch and transformers.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pipeline_bubble import TEXT, free_port

RANKS = 2
LENGTH = 128
WARM_UP = 2


def by_torch(kind, folder, steps, micro_batches):
    """One rank of them, in this process; the first prints the seconds of each step."""
    import torch
    import transformers
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    model.config.use_cache = False
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
        waits = lambda is_last: setattr(model, "require_backward_grad_sync", is_last)  # noqa: E731
    else:
        mesh = distributed.init_device_mesh("cpu", (RANKS,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        waits = lambda is_last: model.set_requires_gradient_sync(is_last)  # noqa: E731
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        for micro_batch in range(micro_batches):
            tokens = torch.randint(0, 256, (1, LENGTH))
            waits(micro_batch == micro_batches - 1)
            (model(input_ids=tokens, labels=tokens).loss / micro_batches).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    if distributed.get_rank() == 0:
        print(json.dumps(seconds))
    distributed.destroy_process_group()


def of_ranks(words):
    """What the first of the ranks prints."""
    port = free_port()
    ranks = []
    for rank in range(RANKS):
        environment = dict(
            os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        ranks.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = [rank.communicate() for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit("".join(error for _, error in said))
    return said[0][0]


def step_of_torch(kind, folder, args):
    words = [sys.executable, __file__, "--rank", kind, str(folder), str(args.steps), str(args.accumulate)]
    return statistics.median(json.loads(of_ranks(words).splitlines()[-1])[WARM_UP:])


def step_of_strata(stage, folder, args):
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    of_ranks([args.strata, "train", "--model", str(folder / "model"), "--data", str(TEXT), "--out", str(out),
              "--sequence-length", str(LENGTH), "--micro-batch", "1", "--accumulate", str(args.accumulate), "--steps",
              str(args.steps), "--recipe", "fp32", "--threads", str(RANKS), "--ranks", str(RANKS), "--zero-stage", stage])
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return statistics.median([record["step_s"] for record in records if "step_s" in record][WARM_UP:])


def main():
    if sys.argv[1:2] == ["--rank"]:
        kind, folder, steps, micro_batches = sys.argv[2:]
        return by_torch(kind, Path(folder), int(steps), int(micro_batches))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strata")
    for name, default in (("rounds", 3), ("steps", 8), ("accumulate", 4), ("hidden", 512), ("layers", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    args.strata = str(Path(args.strata).resolve())
    ways = {"DDP": (step_of_torch, "ddp"), "fully_shard": (step_of_torch, "fsdp"),
            "strata, stage 0": (step_of_strata, "0"), "strata, stage 3": (step_of_strata, "3")}
    measured = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([args.strata, "init", "--data", str(TEXT), "--out", str(folder / "model"), "--vocab-size", "300",
                        "--hidden", str(args.hidden), "--heads", "8", "--layers", str(args.layers)],
                       check=True, stdout=subprocess.DEVNULL)
        for _ in range(args.rounds):
            for name, (step_of, kind) in ways.items():
                measured[name].append(step_of(kind, folder, args))
    print("| | step, s (least and most of the rounds) | of DDP | of fully_shard |")
    print("|---|---|---|---|")
    whole = {name: statistics.median(times) for name, times in measured.items()}
    for name, times in measured.items():
        print(f"| {name} | {whole[name]:.3f} ({min(times):.3f} to {max(times):.3f}) | {whole[name] / whole['DDP']:.2f} "
              f"| {whole[name] / whole['fully_shard']:.2f} |")


if __name__ == "__main__":
    main()
