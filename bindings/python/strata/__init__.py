# SPDX-License-Identifier: Apache-2.0
"""Strata: training whose weights, gradients and optimizer state lie in memory and on drives.

plan(), train() and Model work on Hugging Face model directories; Store keeps the state of a model
that the caller computes by itself; bench_io() measures drives. Options have the names of the
programs `strata train` and `strata bench io`.
"""

from ._bench import DriveRates, Latency, bench_io
from ._device_memory import DeviceMemory
from ._library import (
    BusyError,
    ConfigError,
    CorruptError,
    DeadlineError,
    DeviceError,
    DoesNotFit,
    DriveError,
    Error,
    ForkedError,
    HandleError,
    InternalError,
    Interrupted,
    NumericError,
    OutOfMemory,
    PeerError,
    UsageError,
    version as __version__,
)
from ._plan import Plan
from ._ranks import Ranks, Transport
from ._store import Store
from ._train import Model, RunResult, StepReport, plan, train
from ._units import GroupUpdate, Source, Statistics, StepResult, Unit, Use
from ._view import View

__all__ = [
    "BusyError",
    "ConfigError",
    "CorruptError",
    "DeadlineError",
    "DeviceError",
    "DeviceMemory",
    "DoesNotFit",
    "DriveError",
    "DriveRates",
    "Error",
    "ForkedError",
    "GroupUpdate",
    "HandleError",
    "InternalError",
    "Interrupted",
    "Latency",
    "Model",
    "NumericError",
    "OutOfMemory",
    "PeerError",
    "Plan",
    "Ranks",
    "RunResult",
    "Source",
    "Statistics",
    "StepReport",
    "StepResult",
    "Store",
    "Transport",
    "Unit",
    "UsageError",
    "Use",
    "View",
    "__version__",
    "bench_io",
    "plan",
    "train",
]
