#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks runs of `strata launch` on four machines, which lose machines and get them back, and checks
that each ends with the bits of the same sequence of meshes without a failure.

    benchmarks/restart_meshes.py build/bindings/cli/strata [--kills 200] [--seconds 900] [--seed 1]

The machines are this one, each with one rank and a drive directory of its own. A kill is one of three,
at a random time: SIGKILL to a rank; SIGKILL to a whole machine other than the first, which stays away,
so that fewer ranks go on (--min-ranks 2); or SIGKILL to a rank when a lost machine has come back. Ends
after so many kills or seconds. Each run is stopped by SIGTERM; then a run of threads does the steps of
each mesh, from checkpoint to checkpoint, and must have the same state and losses. Needs root. Exit
code 1: a run was wrong.
"""

import argparse
import random
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from restart_stress import TEXT, Run, leave, leftovers, losses_of, make_place, state_of

MACHINES = 4
ACCUMULATE = 3  # of a rank where all are there: 4, 3 and 2 ranks share the 12 micro-batches of a step
KILLS_A_RUN = 10
HANGS_AFTER_S = 90
RESTART = re.compile(r"; restart \d+ of \d+ goes on (?:from its beginning|from step (\d+)) with (\d+) ranks?")


class Job:
    """The launching processes of all machines."""

    def __init__(self, strata, directory, port):
        self.strata, self.directory, self.port = strata, directory, port
        self.machines = {}
        self.gone = []
        for machine in range(MACHINES):
            self.start(machine)
        self.first = self.machines[0]

    def start(self, machine):
        own = self.directory / f"drive-{machine}"
        own.mkdir(exist_ok=True)
        words = ["unshare", "--mount", "sh", "-c", f'mount --bind {own} drive && exec "$@"', "sh",
                 self.strata, "launch", "--nodes", str(MACHINES), "--node-rank", str(machine), "--ranks", "1",
                 "--rendezvous", f"127.0.0.1:{self.port}", "--secret-file", "secret", "--rendezvous-deadline", "4",
                 "--max-restarts", "1000", "--min-ranks", "2", "--",
                 "train", "--model", "model", "--data", str(TEXT), "--out", "run", "--sequence-length", "32",
                 "--schedule", "constant", "--steps", "1000000", "--accumulate", str(ACCUMULATE),
                 "--checkpoint-every", "5", "--host-memory", "600MiB", "--nvme", "drive", "--offload", "nvme",
                 "--threads", "1"]
        self.machines[machine] = Run(words, self.directory)

    def restarts(self):
        """The step and number of ranks from which each start went on, but for the first."""
        found = [RESTART.search(line) for _, line in self.first.lines]
        return [(int(one[1] or 0), int(one[2])) for one in found if one]

    def kill_rank(self, machine):
        for rank in self.machines[machine].ranks():
            kill(rank)

    def kill_machine(self, machine):
        run = self.machines.pop(machine)
        ranks = run.ranks()
        kill(run.process.pid)
        for rank in ranks:
            kill(rank)
        self.gone.append(run)

    def trains(self):
        """Whether it does steps since its last restart."""
        lines = [line for _, line in self.first.lines]
        last = max((i for i, line in enumerate(lines) if RESTART.search(line)), default=0)
        return any(line.startswith("step ") and "(predicted)" not in line for line in lines[last:])


def kill(process):
    try:
        subprocess.run(["kill", "-9", str(process)], stderr=subprocess.DEVNULL)
    except ProcessLookupError:
        pass


def wait_until(condition, limit_s):
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


def break_once(job, draw):
    """Returns what was done, and whether the job has restarted."""
    time.sleep(draw.uniform(0, 2))
    before = len(job.restarts())
    # A machine that did not come in time for a restart has ended, as one that was killed.
    for machine in [m for m, run in job.machines.items() if run.is_over()]:
        job.gone.append(job.machines.pop(machine))
    absent = [machine for machine in range(MACHINES) if machine not in job.machines]
    chance = draw.random()
    if absent and chance < 0.3:
        job.start(draw.choice(absent))
        time.sleep(0.5)
        what = "a machine came back"
        victim = draw.choice([machine for machine in job.machines if machine not in absent])
        job.kill_rank(victim)
    elif len(job.machines) > 2 and chance < 0.65:
        what = "a machine was lost"
        job.kill_machine(draw.choice([machine for machine in job.machines if machine > 0]))
    else:
        what = "a rank was lost"
        job.kill_rank(draw.choice(list(job.machines)))
    return what, wait_until(lambda: len(job.restarts()) > before or job.first.is_over(), HANGS_AFTER_S)


def unbroken(strata, directory, meshes, end):
    """The state and the losses of these meshes, each from its step to that of the next."""
    shutil.rmtree(directory / "whole", ignore_errors=True)
    text, is_first = "", True
    for (first, ranks), (last, _) in zip(meshes, meshes[1:] + [(end, 0)]):
        if last <= first:
            continue
        begin = ["--model", "model", "--data", str(TEXT), "--sequence-length", "32", "--schedule", "constant",
                 "--host-memory", "600MiB", "--threads", "1"]
        words = [strata, "train", "--out", "whole", *(begin if is_first else ["--resume", "--force"]),
                 "--ranks", str(ranks), "--accumulate", str(MACHINES * ACCUMULATE // ranks), "--steps", str(last)]
        done = subprocess.run(words, cwd=directory, capture_output=True, text=True)
        if done.returncode != 0:
            return None, done.stderr
        text, is_first = done.stdout, False
    return state_of(text), losses_of(directory / "whole")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("strata", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=29600)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    strata = str(given.strata.resolve())
    directory = make_place(strata, "strata-meshes-")
    (directory / "secret").touch(mode=0o600)
    (directory / "secret").write_text(secrets.token_hex(32))
    begin_s = time.monotonic()
    kinds, sizes, changes = Counter(), Counter(), Counter()
    kills, runs, wrong = 0, 0, 0
    while kills < given.kills and time.monotonic() - begin_s < given.seconds:
        shutil.rmtree(directory / "run", ignore_errors=True)
        job, of_run, problems = Job(strata, directory, given.port), 0, []
        if not wait_until(job.trains, HANGS_AFTER_S):
            problems.append("it did not start")
        while not problems and of_run < KILLS_A_RUN and kills < given.kills:
            what, is_back = break_once(job, draw)
            kinds[what] += 1
            kills, of_run = kills + 1, of_run + 1
            if not is_back or job.first.is_over():
                problems.append(f"after kill {of_run} ({what}) it " + ("hung" if not is_back else "ended"))
        if not problems and not wait_until(job.trains, HANGS_AFTER_S):
            problems.append("it did not go on")
        first = job.first
        first.process.send_signal(signal.SIGTERM if not problems else signal.SIGKILL)
        for machine, run in list(job.machines.items()):
            if problems:
                job.kill_machine(machine)
            elif (code := run.finish(HANGS_AFTER_S)) != 0 and machine == 0:
                problems.append(f"exit code {code}")
        for run in job.gone:
            run.finish(HANGS_AFTER_S)
        meshes = [(0, MACHINES), *job.restarts()]
        sizes.update(ranks for _, ranks in meshes[1:])
        changes.update(f"{one} to {two}" for (_, one), (_, two) in zip(meshes, meshes[1:]) if one != two)
        if not problems:
            problems = leftovers(directory) + [str(path) for path in directory.glob("drive-*/*")]
            end = max(int(path.name[5:]) for path in (directory / "run/checkpoints").iterdir())
            state, losses = unbroken(strata, directory, meshes, end)
            if state is None or state != state_of(first.text()):
                problems.append(f"state {state_of(first.text())}, not {state} ({losses if state is None else ''})")
            elif losses != losses_of(directory / "run"):
                problems.append("other losses")
        runs += 1
        wrong += bool(problems)
        print(f"run {runs}: {of_run} kills, ranks {' '.join(str(ranks) for _, ranks in meshes)}: "
              f"{'; '.join(problems) or 'right'}", flush=True)
        if problems:
            (directory / f"wrong-{runs}.txt").write_text(first.text())
    print(f"{kills} kills in {runs} runs and {time.monotonic() - begin_s:.0f} s, {wrong} wrong")
    print("kills: " + ", ".join(f"{count} {what}" for what, count in sorted(kinds.items())))
    print("restarts by ranks: " + ", ".join(f"{ranks}: {count}" for ranks, count in sorted(sizes.items())))
    print("changes of the number of ranks: " + ", ".join(f"{what}: {count}" for what, count in sorted(changes.items())))
    leave(directory, wrong)


if __name__ == "__main__":
    main()
