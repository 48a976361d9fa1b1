#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on a JSONL file of many GB: memory, and time to the first step, without and with tokens on disk.

  large_data.py --strata build/bindings/cli/strata --dir /a/directory/on/the/drive [--gb 20] [--samples packed]
    [--chat-template FILE.jinja]

Writes a synthetic file of that size (prompts and completions of words of a vocabulary by Zipf's law, or with a template
chats of a system message and one to three questions with answers), makes a small model, and trains two steps of it three times: with an empty cache, with the tokens there, and with the tokens there
again. Prints a Markdown table: the peak of resident memory (VmHWM, as the kernel counts it for the whole process), the
time from the start to the end of the first step, and the size of the tokens. Deletes what it wrote.
"""
import argparse
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import time


def words(rng, count):
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    return ["".join(rng.choices(letters, range(26, 0, -1), k=rng.randint(2, 9))) for _ in range(count)]


def record_of(text, rng, are_chats):
    if not are_chats:
        return {"prompt": text(rng.randint(5, 60)), "completion": " " + text(rng.randint(5, 150))}
    messages = [{"role": "system", "content": text(12)}]
    for _ in range(rng.randint(1, 3)):
        messages += [{"role": "user", "content": text(rng.randint(5, 60))},
                     {"role": "assistant", "content": text(rng.randint(5, 250))}]
    return {"messages": messages}


def write_data(path, size, are_chats):
    """Repeats a block of 8 MB, so that writing takes as long as the drive takes."""
    rng = random.Random(1)
    vocabulary = words(rng, 20000)
    weights = list(itertools.accumulate(1 / (k + 1) for k in range(len(vocabulary))))

    def text(count):
        return " ".join(rng.choices(vocabulary, cum_weights=weights, k=count))

    block = b""
    while len(block) < 8 << 20:
        records = [record_of(text, rng, are_chats) for _ in range(200)]
        block += "".join(json.dumps(record) + "\n" for record in records).encode()
    with open(path, "wb") as file:
        while file.tell() < size:
            file.write(block)


def train(command, out):
    """Returns the seconds to the first step and the peak of memory in bytes."""
    shutil.rmtree(out, ignore_errors=True)
    begin = time.time()
    child = subprocess.Popen(command + ["--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    metrics = out / "metrics.jsonl"
    first, ended = None, 0
    while ended == 0:
        if first is None and metrics.exists() and metrics.stat().st_size > 0:
            first = time.time() - begin
        time.sleep(0.05)
        ended, status, usage = os.wait4(child.pid, os.WNOHANG)
    if status != 0 or first is None:
        raise SystemExit(f"strata train failed:\n{child.stderr.read().decode()}")
    return first, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--strata", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--gb", type=float, default=20)
    parser.add_argument("--samples", default="packed", choices=["stream", "record", "packed"])
    parser.add_argument("--chat-template", help="writes chats instead, to be rendered with this file")
    parser.add_argument("--host-memory", default="256MiB")
    options = parser.parse_args()
    folder = pathlib.Path(options.dir) / "large_data"
    folder.mkdir()
    try:
        measure(options, folder)
    finally:
        shutil.rmtree(folder)


def measure(options, folder):
    data = folder / "data.jsonl"
    small = folder / "small.txt"
    begin = time.time()
    write_data(data, options.gb * 1e9, options.chat_template)
    size = data.stat().st_size
    written_s = time.time() - begin
    with open(data) as file, open(small, "w") as text:
        for _ in range(5000):
            record = json.loads(file.readline())
            text.write((record["messages"][-1]["content"] if "messages" in record else record["completion"]) + "\n")
    strata = os.path.abspath(options.strata)
    model = folder / "model"
    subprocess.run([strata, "init", "--data", small, "--out", model, "--vocab-size", "8000", "--hidden", "64",
                    "--layers", "2", "--heads", "4"], check=True, stdout=subprocess.DEVNULL)
    cache = folder / "cache"
    command = [strata, "train", "--model", str(model), "--data", str(data), "--samples", options.samples,
               "--sequence-length", "512", "--steps", "2", "--data-cache", str(cache), "--host-memory",
               options.host_memory]
    if options.chat_template:
        command += ["--chat-template", os.path.abspath(options.chat_template)]
    print(f"{size / 1e9:.2f} GB of JSONL (written in {written_s:.0f} s), --samples {options.samples}, "
          f"--host-memory {options.host_memory}, {os.cpu_count()} cores\n")
    print("| run | to the first step | peak memory | tokens on disk |\n|---|---|---|---|", flush=True)
    for name in ["no tokens yet", "tokens on disk", "tokens on disk"]:
        first_s, peak = train(command, folder / "run")
        kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
        print(f"| {name} | {first_s:.1f} s ({size / 1e6 / first_s:.1f} MB/s) | {peak / 2**20:.0f} MiB | "
              f"{kept / 1e9:.2f} GB |", flush=True)


if __name__ == "__main__":
    main()
