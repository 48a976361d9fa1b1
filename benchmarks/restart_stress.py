#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks runs of `strata launch --max-restarts` at random times and checks that each ends with the
bits of an unbroken run, that none hangs, and that no process, scratch or temporary file is left.

    benchmarks/restart_stress.py build/bindings/cli/strata [--kills 200] [--stops 8] [--ranks 4]

A kill is a SIGKILL of a random rank, at a random time from the start of its processes on; --stops
of them are a SIGSTOP instead, which the others notice by silence. Prints a line for each run, and
how long the ranks that were left took to end and the job to do its next step. Exit code 1: a run
was wrong.
"""

import argparse
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TEXT = Path(__file__).resolve().parent.parent / "tests/data/cli/harbour.txt"
KILLS_A_RUN = 10
HANGS_AFTER_S = 180


class Run:
    """One job under `strata launch`, its output with times, and its processes."""

    def __init__(self, words, directory):
        environment = dict(os.environ, TMPDIR=str(directory / "temporary"))
        self.process = subprocess.Popen(
            words, cwd=directory, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines = []
        self.threads = [threading.Thread(target=self._read, args=(stream,))
                        for stream in (self.process.stdout, self.process.stderr)]
        for thread in self.threads:
            thread.start()

    def _read(self, stream):
        for line in stream:
            self.lines.append((time.monotonic(), line.rstrip()))

    def ranks(self):
        try:
            pid = self.process.pid
            return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []

    def is_over(self):
        return self.process.poll() is not None

    def finish(self, limit_s):
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "hung"
            self.process.wait()
        for thread in self.threads:
            thread.join()
        return code

    def text(self):
        return "\n".join(line for _, line in self.lines)


def state_of(text):
    found = re.findall(r"^state    (\w+) in", text, re.MULTILINE)
    return found[-1] if found else None


def losses_of(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [line[:line.index('"lr"')] for line in lines]


def make_place(strata, prefix):
    """A directory with a small model, and folders for a drive and temporary files."""
    directory = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    for folder in ("temporary", "drive"):
        (directory / folder).mkdir()
    subprocess.run([strata, "init", "--data", str(TEXT), "--out", "model", "--vocab-size", "300",
                    "--hidden", "32", "--layers", "2", "--heads", "4"],
                   cwd=directory, check=True, stdout=subprocess.DEVNULL)
    return directory


def leave(directory, wrong):
    """Ends the program; the directory stays where runs were wrong."""
    if wrong == 0:
        shutil.rmtree(directory)
    else:
        print(f"see {directory}")
    sys.exit(wrong > 0)


def leftovers(directory):
    left = [str(path) for folder in ("temporary", "drive")
            for path in (directory / folder).iterdir()]
    left += [path.name for path in (directory / "run/checkpoints").iterdir()
             if not re.fullmatch(r"step-\d+", path.name)]
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == str(directory):
                left.append(f"process {entry.name}")
        except OSError:
            pass
    return left


def break_once(run, draw, number, deadline_s):
    """Sends `number` to a rank after a random time; how long until the restart and its first step."""
    begin = len(run.lines)
    wait_s = draw.uniform(0, 2.5)
    until = time.monotonic() + wait_s
    while time.monotonic() < until and not run.is_over():
        time.sleep(0.005)
    ranks = run.ranks()
    if not ranks or run.is_over():
        return None
    begin = len(run.lines)
    sent_s = time.monotonic()
    try:
        os.kill(draw.choice(ranks), number)
    except ProcessLookupError:
        return None
    down_s = None
    while time.monotonic() < sent_s + deadline_s:
        for at_s, line in run.lines[begin:]:
            if "; restart " in line:
                down_s = at_s - sent_s
        if down_s is not None or run.is_over():
            break
        time.sleep(0.005)
    return down_s, sent_s


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("strata", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stops", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    stops = set(draw.sample(range(given.kills), given.stops))
    strata = str(given.strata.resolve())
    directory = make_place(strata, "strata-restarts-")

    def command(out, restarts):
        return [strata, "launch", "--ranks", str(given.ranks), "--max-restarts", str(restarts),
                "--", "train", "--model", "model", "--data", str(TEXT), "--out", out,
                "--sequence-length", "32", "--schedule", "constant", "--steps", str(given.steps),
                "--checkpoint-every", "10", "--host-memory", "600MiB", "--nvme", "drive",
                "--offload", "nvme", "--threads", "1"]

    whole = Run(command("whole", 0), directory)
    begin_s = time.monotonic()
    if whole.finish(HANGS_AFTER_S) != 0:
        sys.exit("the unbroken run failed:\n" + whole.text())
    print(f"unbroken: {time.monotonic() - begin_s:.1f} s, state {state_of(whole.text())}")
    kills, runs, wrong = 0, 0, 0
    downs = {signal.SIGKILL: [], signal.SIGSTOP: []}
    backs = []
    while kills < given.kills:
        shutil.rmtree(directory / "run", ignore_errors=True)
        run = Run(command("run", KILLS_A_RUN), directory)
        begin_s, of_run = time.monotonic(), 0
        while of_run < KILLS_A_RUN and kills < given.kills and not run.is_over():
            number = signal.SIGSTOP if kills in stops else signal.SIGKILL
            took = break_once(run, draw, number, HANGS_AFTER_S)
            if took is None:
                continue
            kills, of_run = kills + 1, of_run + 1
            if took[0] is None:
                break
            downs[number].append(took[0])
        code = run.finish(HANGS_AFTER_S)
        problems = leftovers(directory) if (directory / "run/checkpoints").exists() else ["no run"]
        if code != 0:
            problems.append(f"exit code {code}")
        if state_of(run.text()) != state_of(whole.text()):
            problems.append(f"state {state_of(run.text())}")
        if losses_of(directory / "run") != losses_of(directory / "whole"):
            problems.append("other losses")
        restarts = run.text().count("; restart ")
        for at, (at_s, line) in enumerate(run.lines):
            if "; restart " in line:
                steps = [later for later, text in run.lines[at + 1:] if text.startswith("step ")]
                backs += [steps[0] - at_s] if steps else []
        runs += 1
        wrong += bool(problems)
        print(f"run {runs}: {of_run} signals, {restarts} restarts, "
              f"{time.monotonic() - begin_s:.1f} s, {'; '.join(problems) or 'right'}", flush=True)
        if problems:
            (directory / f"wrong-{runs}.txt").write_text(run.text())
    for number, took in downs.items():
        if took:
            print(f"{number.name}: {len(took)}, the others had ended after {statistics.median(took):.2f} s "
                  f"(median), {max(took):.2f} s (most)")
    if backs:
        print(f"the next step after {statistics.median(backs):.2f} s (median), {max(backs):.2f} s (most), "
              "unless it was broken before")
    print(f"{kills} signals in {runs} runs, {wrong} wrong")
    leave(directory, wrong)


if __name__ == "__main__":
    main()
