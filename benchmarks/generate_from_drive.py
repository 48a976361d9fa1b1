#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generating with a model three times as large as --host-memory: how much of the drive's rate a token reaches.

  generate_from_drive.py --strata build/bindings/cli/strata --dir /a/directory/on/the/drive [--layers 16] [--rounds 5]

Makes a random model (2048 wide, 50 million parameters a layer), and generates with a third of its size as memory, one text
at a time and several at once. A token's time and bytes are the differences of a long and a short run, so that loading and
the prompt do not count; bytes are those that the kernel counts for the process. The drive's rate is that of
`strata bench io --mode read`, measured before and after each round. Deletes what it wrote.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import time

SHORT, LONG = 4, 20  # new tokens


def run(command):
    """Returns seconds and the bytes that were read from drives."""
    begin = time.perf_counter()
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f"failed: {command}\n{child.stderr.read().decode()}")
    return time.perf_counter() - begin, usage.ru_inblock * 512


def drive_rate(strata, folder):
    answer = subprocess.run([strata, "bench", "io", "--nvme", folder, "--mode", "read", "--block", "4MiB", "--seconds", "2",
                             "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    found = []

    def search(value):
        if isinstance(value, dict):
            if "read_latency" in value:
                found.append(value["read_bytes_per_s"])
            for inner in value.values():
                search(inner)
        elif isinstance(value, list):
            for inner in value:
                search(inner)
    search(json.loads(answer))
    return max(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--strata", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = pathlib.Path(options.dir) / "generate_from_drive"
    folder.mkdir()
    try:
        measure(options, folder)
    finally:
        shutil.rmtree(folder)


def measure(options, folder):
    strata = os.path.abspath(options.strata)
    rng = random.Random(1)
    text = folder / "text.txt"
    text.write_text(" ".join("".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(40000)))
    model = folder / "model"
    run([strata, "init", "--data", text, "--out", model, "--vocab-size", "4096", "--hidden", "2048", "--layers",
         options.layers, "--heads", "16"])
    size = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    memory = size // 3
    print(f"{size / 1e9:.2f} GB of weights, --host-memory {memory / 2**20:.0f} MiB, {os.cpu_count()} cores\n")
    print("| texts at a time | read for a token of each | a token of each | rate | of the drive's |\n|---|---|---|---|---|", flush=True)
    for texts in (1, 8):
        command = [strata, "generate", "--model", model, "--temperature", "0", "--host-memory", f"{memory}B"]
        for k in range(texts):
            command += ["--prompt", f"the {k} harbour"]
        times, sizes, ratios = [], [], []
        for _ in range(options.rounds):
            before = drive_rate(strata, folder)
            short = run(command + ["--max-new-tokens", SHORT])
            long = run(command + ["--max-new-tokens", LONG])
            after = drive_rate(strata, folder)
            seconds, read = ((b - a) / (LONG - SHORT) for a, b in zip(short, long))
            times.append(seconds)
            sizes.append(read)
            ratios.append(read / seconds / ((before + after) / 2))
        seconds, read = statistics.median(times), statistics.median(sizes)
        print(f"| {texts} | {read / 1e9:.2f} GB | {seconds:.2f} s | {read / seconds / 1e9:.2f} GB/s | "
              f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |", flush=True)


if __name__ == "__main__":
    main()
