# SPDX-License-Identifier: Apache-2.0
"""Measurements of drives."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import Any, Callable, Optional

from . import _library as lib
from ._callbacks import Guard, sinks_of
from ._plan import Options, options_text


@dataclass(frozen=True)
class Latency:
    """Seconds from a request to its end; 0 where there were none."""

    p50_s: float
    p99_s: float
    p999_s: float
    max_s: float


@dataclass(frozen=True)
class DriveRates:
    """One measurement: requests of block_bytes, `depth` in flight over all files, for a while.

    files: in each directory. cpu_s_per_gb: of the whole process. direct: not through the page
    cache. verified: with checksums. cut_short: the limit of bytes to write ended it.
    """

    mode: str
    block_bytes: int
    depth: int
    files: int
    seconds: float
    bytes_read: int
    bytes_written: int
    read_bytes_per_s: float
    write_bytes_per_s: float
    cpu_s_per_gb: float
    read: Latency
    write: Latency
    direct: bool
    verified: bool
    cut_short: bool


def bench_io(
    options: Optional[Options] = None,
    *,
    progress: Optional[Callable[[DriveRates], Any]] = None,
    log: Optional[Callable[[int, str], None]] = None,
    **more: Any,
) -> list[DriveRates]:
    """Measures drives by the reads and writes that training uses.

    options: those of `strata bench io` by name: bench_io(nvme=["/mnt/a"], mode=["read"], seconds=2).
        Scratch files are written there and disappear with the call.
    progress: called after each measurement. When it returns False, the measurements end with
        Interrupted; when it raises, with what it raised.
    """
    sinks, _kept = sinks_of(log)
    all_rates: list[DriveRates] = []
    guarded = Guard()

    def take(rates: DriveRates) -> Any:
        all_rates.append(rates)
        return progress(rates) if progress is not None else None

    measured = lib.ON_RATES(lambda _, at: guarded(lambda: take(_rates(at.contents))))
    with guarded:
        lib.call("bench_io", options_text(options, **more), c.byref(sinks), measured, None)
    return all_rates


def _latency(struct: lib.LatencyStruct) -> Latency:
    return Latency(struct.p50_s, struct.p99_s, struct.p999_s, struct.max_s)


def _rates(struct: lib.RatesStruct) -> DriveRates:
    return DriveRates(
        mode=struct.mode.decode(),
        block_bytes=struct.block_bytes,
        depth=struct.depth,
        files=struct.files,
        seconds=struct.seconds,
        bytes_read=struct.bytes_read,
        bytes_written=struct.bytes_written,
        read_bytes_per_s=struct.read_bytes_per_s,
        write_bytes_per_s=struct.write_bytes_per_s,
        cpu_s_per_gb=struct.cpu_s_per_gb,
        read=_latency(struct.read),
        write=_latency(struct.write),
        direct=bool(struct.direct),
        verified=bool(struct.verified),
        cut_short=bool(struct.cut_short),
    )
