#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The price of offload: a Llama of Transformers by plain PyTorch, everything resident, and by strata.torch
with its state in a store, by turns; with --deepspeed also by DeepSpeed's ZeRO-3 with everything on the drive.
With --trainer the Trainer of Transformers trains both.

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
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--deepspeed", action="store_true", help="needs deepspeed and libaio-dev")
    either.add_argument("--trainer", action="store_true", help="needs accelerate")
    ways = ["plain", "store", "deepspeed"]
    parser.add_argument("--child", choices=ways, help=argparse.SUPPRESS)
    return parser.parse_args()


def deepspeed_engine(model, given):
    """ZeRO-3 with parameters and optimizer state on the drive, and AdamW as the others have it."""
    import os

    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(place, MASTER_PORT="29533", DS_ACCELERATOR="cpu")
    import deepspeed

    drive = {"device": "nvme", "nvme_path": given.nvme, "pin_memory": False}
    size = max(parameter.numel() for parameter in model.parameters())
    zero = {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "sub_group_size": 20_000_000,
        "offload_param": {**drive, "buffer_count": 12, "buffer_size": 2 * size},
        "offload_optimizer": {**drive, "buffer_count": 6},
    }
    config = {
        "train_micro_batch_size_per_gpu": int(given.batch.split(",")[0]),
        "gradient_accumulation_steps": given.accumulate,
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}},
        "aio": {"block_size": 1 << 20, "queue_depth": 32, "intra_op_parallelism": 2},
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def train_by_trainer(model, optimizer, tokens, given):
    """The steps and losses of the Trainer of Transformers."""
    import tempfile

    import transformers

    seconds, losses = [], []

    class Watch(transformers.TrainerCallback):
        def on_step_begin(self, *_given, **_more):
            self.begin = time.monotonic()

        def on_step_end(self, *_given, **_more):
            seconds.append(time.monotonic() - self.begin)

        def on_log(self, *_given, logs, **_more):
            losses.extend([logs["loss"]] if "loss" in logs else [])

    rows = [{"input_ids": row, "labels": row} for row in tokens.flatten(0, 1)]
    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            output_dir=out, use_cpu=True, per_device_train_batch_size=tokens.shape[1],
            gradient_accumulation_steps=given.accumulate, gradient_checkpointing=True,
            max_steps=given.steps, lr_scheduler_type="constant", max_grad_norm=0, logging_steps=1,
            save_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=rows, optimizers=(optimizer, None), callbacks=[Watch()]
        )
        if given.child == "store":
            optimizer.attach(trainer)
        trainer.train()
    return seconds, losses


def train_by_loop(model, optimizer, loss_of, given):
    """The steps and losses of a loop; DeepSpeed's engine is model and optimizer in one."""
    seconds, losses = [], []
    for _ in range(given.steps):
        begin = time.monotonic()
        losses.append(0.0)
        for m in range(given.accumulate):
            loss = loss_of(m)
            if optimizer is None:  # DeepSpeed divides by the number of micro-batches itself
                model.backward(loss * given.accumulate)
                model.step()
            else:
                loss.backward()
            losses[-1] += loss.item()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        seconds.append(time.monotonic() - begin)
    return seconds, losses


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

    optimizer = None
    if given.child == "deepspeed":
        model = deepspeed_engine(model, given)

    def loss_of(m):
        return model(input_ids=tokens[m], labels=tokens[m]).loss / given.accumulate

    if given.child == "store":
        import strata.torch

        wanted = {"nvme": given.nvme, "threads": given.threads, "accumulate": given.accumulate}
        if given.host_memory != "0":
            wanted["host_memory"] = given.host_memory
        state = strata.torch.offload(model, lambda: loss_of(0), wanted)
        optimizer = strata.torch.Optimizer(state, lr=1e-4)
    elif given.child == "plain":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if given.trainer:
        seconds, losses = train_by_trainer(model, optimizer, tokens, given)
    else:
        seconds, losses = train_by_loop(model, optimizer, loss_of, given)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds[1:], "losses": losses, "peak_mib": peak}


def main():
    given = options()
    if given.child:
        print(json.dumps(sample(given)))
        return
    samples = {"plain": [], "store": []}
    if given.deepspeed:
        samples["deepspeed"] = []
    for _ in range(given.rounds):
        for kind, seen in samples.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--child", kind]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found = [line for line in output.splitlines() if line.startswith('{"seconds"')]
            seen.append(json.loads(found[-1]))
    differ = max(
        abs(a - b) / a
        for plain, store in zip(samples["plain"], samples["store"])
        for a, b in zip(plain["losses"], store["losses"])
    )
    print(f"{'':9} {'step s':>8} {'smallest':>9} {'largest':>8} {'peak MiB':>9}")
    medians = {}
    for kind, seen in samples.items():
        times = [statistics.median(each["seconds"]) for each in seen]
        medians[kind] = statistics.median(times)
        peak = statistics.median(each["peak_mib"] for each in seen)
        print(f"{kind:9} {medians[kind]:8.2f} {min(times):9.2f} {max(times):8.2f} {peak:9.0f}")
    for kind in ("plain", "deepspeed"):
        if kind in medians:
            print(f"store / {kind}: {medians['store'] / medians[kind]:.2f}")
    print(f"losses differ by at most {differ:.1e} of their value")


main()
