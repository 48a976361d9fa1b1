#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicted speed of large models on many GPUs: scaling.py STRATA [--ranks 8,64,512,1024] [--device-exchange host]

Plans Llamas of 70B and 405B parameters for servers of eight H200 GPUs (examples/machines/h200-8nvme.toml with
device_count = 8) joined by networks of several speeds, and prints a table of predictions. Nothing is run on a GPU.
Meshes are of data ranks alone, one copy of the state or more, of which the fastest is taken.
Efficiency is the time in which a GPU computes over the predicted step; the last column but one is without what is
computed again: the MFU by the rate that products sustain.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

MODELS = {
    "70B": dict(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64),
    "405B": dict(hidden_size=16384, intermediate_size=53248, num_hidden_layers=126, num_attention_heads=128),
}
COMMON = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", num_key_value_heads=8, vocab_size=128256,
    max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=500000.0, hidden_act="silu",
    tie_word_embeddings=False, torch_dtype="bfloat16",
)
NETWORKS = {"100 Gbit/s": 12.5e9, "400 Gbit/s": 50e9, "8 x 400 Gbit/s": 400e9}  # of a server
SEQUENCE, TOKENS_OF_RANK = 4096, 65536


def write_machine(folder: str, network: float) -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    text = open(os.path.join(here, "../examples/machines/h200-8nvme.toml")).read()
    text = re.sub(r"(?m)^device_count = .*$", "device_count = 8", text)
    text = re.sub(r"(?m)^network_bytes_per_s = .*$", f"network_bytes_per_s = {network:.4g}", text)
    path = os.path.join(folder, "machine.toml")
    open(path, "w").write(text)
    return path


def plan(strata: str, model: str, machine: str, ranks: int, exchange: str) -> dict:
    """The fastest of the plans whose copies of the state lie on `shards` GPUs each."""
    plans = []
    for shards in sorted({ranks, min(ranks, 128), min(ranks, 64), 8}):
        command = [strata, "plan", "--model", model, "--machine", machine, "--ranks", str(ranks),
                   "--mesh", f"shard={shards},replicate={ranks // shards}", "--reduce-dtype", "bf16", "--device-exchange", exchange,
                   "--sequence-length", str(SEQUENCE), "--accumulate", str(TOKENS_OF_RANK // SEQUENCE), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            plans.append(json.loads(done.stdout) | {"shards": shards})
        elif "does not fit" not in done.stderr:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return max(plans, key=lambda each: each["predicted_tokens_per_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("strata")
    parser.add_argument("--ranks", default="8,64,512,1024")
    parser.add_argument("--device-exchange", default="auto", choices=("auto", "host", "direct"))
    args = parser.parse_args()
    print("| model | network of a server | GPUs | copies of the state | step | tokens/s of a GPU | efficiency | MFU | "
          "limited by |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, sizes in MODELS.items():
            model = os.path.join(folder, name)
            os.makedirs(model)
            json.dump({**COMMON, **sizes}, open(os.path.join(model, "config.json"), "w"))
            for network, rate in NETWORKS.items():
                machine = write_machine(folder, rate)
                for ranks in map(int, args.ranks.split(",")):
                    if ranks == 8 and network != "100 Gbit/s":
                        continue  # one server has no network
                    found = plan(args.strata, model, machine, ranks, args.device_exchange)
                    step = found["predicted_step_s"]
                    copies = ranks // found["shards"]
                    print(f"| {name} | {network if ranks > 8 else 'none'} | {ranks:,} | {copies} | {step:.1f} s | "
                          f"{found['predicted_tokens_per_s'] / ranks:.0f} | {found['busy_s']['compute'] / step:.2f} | "
                          f"{found['predicted_mfu']:.2f} | {found['bottleneck']} |", flush=True)


if __name__ == "__main__":
    main()
