#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares gathers and sums of two ranks with iperf3 over the same link.

    benchmarks/network_vs_iperf3.py build/benchmarks/network_bench [--mbit 200,1000,0] [--rounds 5]
        [--kilobytes 64,1000,16000] [--seconds 1.5]

Two machines are network namespaces with a link of so many Mbit/s between them; 0: a veth pair
without a limit. iperf3 sends in both directions at once (--bidir), as ranks do; its rate is that of
the slower direction. All take turns. Needs root and iperf3. Goal: 0.8 of iperf3 for the largest size.
Exit code 1: it was missed.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from two_machines import TwoMachines

GOAL = 0.8


def numbers(text):
    return [int(word) for word in text.split(",")]


def by_iperf3(machines, seconds):
    """Bytes/s of the slower direction."""
    server = subprocess.Popen([*machines.on(0), "iperf3", "-s", "--forceflush"], stdout=subprocess.PIPE, text=True)
    try:
        while "listening" not in server.stdout.readline():
            pass
        done = subprocess.run([*machines.on(1), "iperf3", "-c", machines.HOSTS[0], "--bidir", "--json",
                               "-t", str(seconds)], capture_output=True, text=True, timeout=seconds + 30)
    finally:
        server.kill()
        server.wait()
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    end = json.loads(done.stdout)["end"]
    return min(end[way]["bits_per_second"] for way in ("sum_received", "sum_received_bidir_reverse")) / 8


def by_ranks(machines, bench, seconds, kilobytes):
    """Bytes/s by call and kilobytes."""
    ranks = [subprocess.Popen(
        [*machines.on(rank), bench, str(rank), "2", f"{machines.HOSTS[0]}:29501", machines.HOSTS[rank],
         str(seconds), *map(str, kilobytes)], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit("".join(said))
    lines = [line.split() for line in said[0].splitlines()]
    return {(call, int(size)): float(rate) for call, size, rate in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path)
    parser.add_argument("--mbit", type=numbers, default=[200, 1000, 0])
    parser.add_argument("--kilobytes", type=numbers, default=[64, 1000, 16000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    given = parser.parse_args()
    yardstick, shares, rates = {}, {}, {}
    with TwoMachines() as machines:
        for _ in range(given.rounds):
            for mbit in given.mbit:
                machines.limit(mbit)
                best = by_iperf3(machines, max(1, round(2 * given.seconds)))
                yardstick.setdefault(mbit, []).append(best)
                found = by_ranks(machines, str(given.bench.resolve()), given.seconds, given.kilobytes)
                for (call, size), rate in found.items():
                    rates.setdefault((mbit, call, size), []).append(rate)
                    shares.setdefault((mbit, call, size), []).append(rate / best)
    missed = False
    for mbit in given.mbit:
        best = [rate / 1e6 for rate in yardstick[mbit]]
        print(f"{f'{mbit} Mbit/s' if mbit > 0 else 'no limit'}: iperf3 {statistics.median(best):.1f} MB/s "
              f"({min(best):.1f} to {max(best):.1f})")
        for (own, call, size), share in shares.items():
            if own != mbit:
                continue
            all_mb = [rate / 1e6 for rate in rates[own, call, size]]
            is_missed = size == max(given.kilobytes) and statistics.median(share) < GOAL
            missed |= is_missed
            print(f"  {call} {size:6} KB  {statistics.median(all_mb):8.1f} MB/s ({min(all_mb):.1f} to "
                  f"{max(all_mb):.1f})  {statistics.median(share):.2f} of iperf3 ({min(share):.2f} to "
                  f"{max(share):.2f}){'  MISSED' if is_missed else ''}")
    sys.exit(missed)


if __name__ == "__main__":
    main()
