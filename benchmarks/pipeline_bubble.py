#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long the ranks of a pipeline wait, beside the formula for stages that are equally fast.

    benchmarks/pipeline_bubble.py build/bindings/cli/strata [--cores 0.45] [--stages 2,3,4] [--windows 3,6,12]
        [--chunks 1,2] [--schedules 1f1b,zero-bubble] [--rounds 3]

Each rank is a process of one thread that may use --cores of a core (a cgroup of version 1, so it
needs root): then all ranks are equally fast, also more of them than there are cores. A step on one
such rank takes T; on N ranks of V chunks, with W windows, it would take T / N without waiting and
T / N * (W + (N - 1) / V) / W by the formula. Where products for weights are delayed (zero bubble),
and they take a third of a step, as forward and backward do, the wait is a third of that.
Rounds alternate; figures are medians.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TEXT = Path(__file__).resolve().parent.parent / "tests/data/cli/harbour.txt"
GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 4000
STEPS = 6
BLOCKS = 12
WAITS = {"1f1b": 1, "zero-bubble": 1 / 3}  # of what 1F1B waits
MICRO_BATCHES = 12


def slow_group(name, cores):
    """A cgroup that may use so many cores."""
    path = GROUPS / name
    path.mkdir(exist_ok=True)
    (path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (path / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * cores)))
    return path


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def step_s(strata, folder, groups, stages, options):
    """The median step, but for the first, on so many ranks."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    words = [strata, "train", "--model", str(folder / "model"), "--data", str(TEXT), "--out", str(out),
             "--sequence-length", "128", "--accumulate", str(MICRO_BATCHES), "--steps", str(STEPS),
             "--threads", str(stages), "--ranks", str(stages), "--pipeline-ranks", str(stages), *options]
    port = free_port()
    ranks = []
    for rank in range(stages):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(stages),
                           LOCAL_WORLD_SIZE=str(stages), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        group = groups[rank]
        ranks.append(subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid()))))
    said = [rank.communicate()[1] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit("".join(said))
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return statistics.median([record["step_s"] for record in records if "step_s" in record][1:])


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strata")
    parser.add_argument("--cores", type=float, default=0.45)
    parser.add_argument("--stages", type=numbers, default=[2, 3, 4])
    parser.add_argument("--windows", type=numbers, default=[3, 6, 12])
    parser.add_argument("--chunks", type=numbers, default=[1, 2])
    parser.add_argument("--schedules", type=lambda text: text.split(","), default=list(WAITS))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    strata = str(Path(args.strata).resolve())
    cases = [(stages, windows, chunks, schedule) for stages in args.stages for windows in args.windows
             for chunks in args.chunks if chunks == 1 or windows % stages == 0 for schedule in args.schedules]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([strata, "init", "--data", str(TEXT), "--out", str(folder / "model"), "--vocab-size", "300",
                        "--hidden", "256", "--heads", "4", "--layers", str(BLOCKS)], check=True, stdout=subprocess.DEVNULL)
        groups = [slow_group(f"strata-bubble-{rank}", args.cores) for rank in range(max(args.stages))]
        alone, measured = [], {case: [] for case in cases}
        for _ in range(args.rounds):
            alone.append(step_s(strata, folder, groups, 1, ["--pipeline-windows", "1"]))
            for case in cases:
                stages, windows, chunks, schedule = case
                measured[case].append(step_s(
                    strata, folder, groups, stages,
                    ["--pipeline-windows", str(windows), "--pipeline-chunks", str(chunks),
                     "--pipeline-schedule", schedule]))
        for group in groups:
            group.rmdir()
    whole = statistics.median(alone)
    print(f"one rank: {whole:.3f} s a step")
    print("| ranks | chunks | windows | schedule | step, s | without waiting | waits, formula | waits, measured "
          "| step / formula |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (stages, windows, chunks, schedule), times in measured.items():
        step, least = statistics.median(times), whole / stages
        formula = least * (windows + (stages - 1) / chunks * WAITS[schedule]) / windows
        print(f"| {stages} | {chunks} | {windows} | {schedule} | {step:.3f} | {least:.3f} | {1 - least / formula:.2f} "
              f"| {1 - least / step:.2f} | {step / formula:.3f} |")


if __name__ == "__main__":
    main()
