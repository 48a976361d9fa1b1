#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The price of offload: a Llama of Transformers by plain PyTorch, everything resident, and by strata.torch
with its state in a store, by turns.

The default is 100M parameters, fp32, activation checkpointing, 4 micro-batches of 1x128 tokens. Each
sample is a process, whose peak memory is that of the system; a step's time is the median of a process.
The losses of both are compared. With --host-memory 0 the store keeps all state in memory.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time


def options():
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--nvme", required=True, help="a directory for scratch files")
    parser.add_argument("--host-memory", default="768MiB", help="of the store")
    shape = "hidden, layers, heads, KV heads, FFN, vocabulary"
    parser.add_argument("--shape", default="768,12,12,4,2048,32000", help=shape)
    parser.add_argument("--batch", default="1,128", help="samples and tokens of a micro-batch")
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4, help="of a process; the first is not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", choices=["plain", "store"], help=argparse.SUPPRESS)
    return parser.parse_args()


def sample(given):
    """Trains, and returns seconds of each step, losses and the peak of memory."""
    import torch
    import transformers

    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    hidden, layers, heads, kv_heads, ffn, vocabulary = map(int, given.shape.split(","))
    config = transformers.LlamaConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, intermediate_size=ffn, vocab_size=vocabulary,
        max_position_embeddings=4096, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model.train()
    model.gradient_checkpointing_enable()
    rows, length = map(int, given.batch.split(","))
    tokens = torch.randint(0, vocabulary, (given.accumulate, rows, length))

    def loss_of(m):
        return model(input_ids=tokens[m], labels=tokens[m]).loss / given.accumulate

    if given.child == "store":
        import strata.torch

        wanted = {"nvme": given.nvme, "threads": given.threads, "accumulate": given.accumulate}
        if given.host_memory != "0":
            wanted["host_memory"] = given.host_memory
        state = strata.torch.offload(model, lambda: loss_of(0), wanted)
        optimizer = strata.torch.Optimizer(state, lr=1e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    seconds, losses = [], []
    for _ in range(given.steps):
        begin = time.monotonic()
        losses.append(0.0)
        for m in range(given.accumulate):
            loss = loss_of(m)
            loss.backward()
            losses[-1] += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.monotonic() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds[1:], "losses": losses, "peak_mib": peak}


def main():
    given = options()
    if given.child:
        print(json.dumps(sample(given)))
        return
    samples = {"plain": [], "store": []}
    for _ in range(given.rounds):
        for kind, seen in samples.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--child", kind]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            seen.append(json.loads(output.splitlines()[-1]))
    differ = max(
        abs(a - b) / a
        for plain, store in zip(samples["plain"], samples["store"])
        for a, b in zip(plain["losses"], store["losses"])
    )
    print(f"{'':8} {'step s':>8} {'smallest':>9} {'largest':>8} {'peak MiB':>9}")
    medians = {}
    for kind, seen in samples.items():
        times = [statistics.median(each["seconds"]) for each in seen]
        medians[kind] = statistics.median(times)
        peak = statistics.median(each["peak_mib"] for each in seen)
        print(f"{kind:8} {medians[kind]:8.2f} {min(times):9.2f} {max(times):8.2f} {peak:9.0f}")
    print(f"store / plain: {medians['store'] / medians['plain']:.2f}")
    print(f"losses differ by at most {differ:.1e} of their value")


main()
