#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the step that `strata plan` predicts with the measured one where a network binds.

    benchmarks/network_bound.py build/bindings/cli/strata [--mbit 200,500,1000] [--rounds 3] [--steps 8] [--ranks 1]
        [--sequence-length 16] [--vary reduce-dtype=fp32,bf16,int8] [--more "--context-ranks 2"]

Two machines are network namespaces with a limited link between them; each has --ranks ranks and a drive
directory of its own. A run measures machine and network; `strata plan` then plans for the profile
that it has kept, so both figures are of one run. Rounds alternate over the rates, the ZeRO stages and
the values of an option; --more are further options of all runs. Needs root. Exit code 1: a prediction is off by more than 15 %, by the median
of the rounds, or the plan does not say that the network (collectives) limits the step.
"""

import argparse
import itertools
import json
import os
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from two_machines import TwoMachines

TEXT = Path(__file__).resolve().parent.parent / "tests/data/cli/harbour.txt"
MOST_OFF = 0.15


def numbers(text):
    return [int(word) for word in text.split(",")]


def option_and_values(text):
    name, values = text.split("=")
    return name, values.split(",")


class Comparison:
    def __init__(self, given, machines, folder):
        self.given, self.machines, self.folder = given, machines, folder
        self.strata = str(given.strata.resolve())
        (folder / "drive").mkdir()
        (folder / "secret").touch(mode=0o600)
        (folder / "secret").write_text(secrets.token_hex(32))
        self.call("init", "--data", TEXT, "--out", "model", "--vocab-size", "400", "--hidden", "512",
                  "--layers", "4", "--heads", "8")

    def call(self, *words):
        done = subprocess.run([self.strata, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        return done.stdout

    def options(self, stage, value):
        return ["--model", "model", "--sequence-length", str(self.given.sequence_length),
                "--host-memory", self.given.host_memory, "--nvme", "drive", "--offload", "nvme", "--threads", "1",
                "--zero-stage", str(stage), f"--{self.given.vary[0]}", value, *self.given.more.split()]

    def start(self, machine, stage, value):
        own = self.folder / f"machine-{machine}"
        (own / "drive").mkdir(parents=True, exist_ok=True)
        command = [*self.machines.on(machine), "sh", "-c", f'mount --bind {own}/drive drive && exec "$@"', "sh",
                   self.strata, "launch", "--nodes", "2", "--node-rank", str(machine), "--ranks", str(self.given.ranks),
                   "--rendezvous", f"{self.machines.HOSTS[0]}:29500", "--secret-file", "secret", "--",
                   "train", *self.options(stage, value), "--data", str(TEXT), "--out", "run",
                   "--steps", str(self.given.steps), "--schedule", "constant"]
        return subprocess.Popen(command, cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env=dict(os.environ, XDG_CACHE_HOME=str(own)))

    def measure(self, stage, value):
        """Of one run: the median step, the plan's, what limits the plan, and the network in bytes/s."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        ranks = [self.start(machine, stage, value) for machine in (1, 0)]
        said = [rank.communicate(timeout=300)[0] for rank in ranks]
        if any(rank.returncode != 0 for rank in ranks):
            sys.exit("".join(said))
        summary = json.loads((self.folder / "run/summary.json").read_text())
        machine = json.loads((self.folder / "run/run.json").read_text())["machine"]
        profile = next((self.folder / "machine-0/strata").glob("machine-*.toml"))
        # In a profile, ranks of a machine are its devices.
        text = re.sub(r"(?m)^device_count *=.*\n", "", profile.read_text())
        (self.folder / "machine.toml").write_text(f"device_count = {self.given.ranks}\n{text}")
        plan = json.loads(self.call("plan", *self.options(stage, value), "--machine", "machine.toml", "--ranks",
                                    2 * self.given.ranks, "--json"))
        return summary, plan, machine["network_bytes_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strata", type=Path)
    parser.add_argument("--mbit", type=numbers, default=[200, 500, 1000])
    parser.add_argument("--stages", type=numbers, default=[0, 3])
    parser.add_argument("--sequence-length", type=int, default=16)
    parser.add_argument("--vary", type=option_and_values, default=("reduce-dtype", ["fp32"]))
    parser.add_argument("--more", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--host-memory", default="220MiB")
    given = parser.parse_args()
    found, wrong = {}, 0
    with tempfile.TemporaryDirectory(prefix="strata-network-") as folder, TwoMachines() as machines:
        comparison = Comparison(given, machines, Path(folder).resolve())
        for _ in range(given.rounds):
            for mbit in given.mbit:
                machines.limit(mbit)
                for case in itertools.product(given.stages, given.vary[1]):
                    found.setdefault((mbit, *case), []).append(comparison.measure(*case))
    print("Mbit/s  stage  value  network, MB/s   step, s: median (least to most)   strata plan, s          "
          "predicted/measured   limited by")
    for (mbit, stage, value), rounds in found.items():
        steps = [summary["median_step_s"] for summary, _, _ in rounds]
        plans = [plan["predicted_step_s"] for _, plan, _ in rounds]
        shares = [plan / step for plan, step in zip(plans, steps)]
        rates = [rate / 1e6 for _, _, rate in rounds]
        limits = sorted({plan["bottleneck"] for _, plan, _ in rounds})
        share = statistics.median(shares)
        is_right = abs(share - 1) <= MOST_OFF and limits == ["collectives"]
        wrong += not is_right
        print(f"{mbit:6}  {stage:5}  {value}  {min(rates):6.1f} to {max(rates):5.1f}   {statistics.median(steps):6.3f} "
              f"({min(steps):.3f} to {max(steps):.3f})         {statistics.median(plans):6.3f} ({min(plans):.3f} to "
              f"{max(plans):.3f})   {share:.2f} ({min(shares):.2f} to {max(shares):.2f})  {', '.join(limits)}"
              f"{'' if is_right else '  WRONG'}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
