# SPDX-License-Identifier: Apache-2.0
"""Copies of a model's state that need not fit in memory."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Collection, Mapping, Optional, Sequence

import numpy as np
import torch

from .. import _library as lib
from .._store import Store
from ._guard import require_values

Tensors = Mapping[str, torch.Tensor]


# From this many elements on PyTorch shares a copy out among threads.
_SHARED_OUT = 32768


def copy_alone(to: torch.Tensor, values: torch.Tensor) -> None:
    """Copies without other threads, for callbacks, which run on a thread of the store. A second team of
    OpenMP threads would make both sleep where they spin otherwise, at each of PyTorch's operations."""
    for first in range(0, values.numel(), _SHARED_OUT - 1):
        part = slice(first, first + _SHARED_OUT - 1)
        to[part].copy_(values[part])


def _free_memory() -> int:
    """Bytes that this process can still take, of the machine's and of its control group's."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    try:
        group = [Path("/sys/fs/cgroup", f"memory.{name}").read_text() for name in ("max", "current")]
        return min(free, int(group[0]) - int(group[1]))
    except (OSError, ValueError):  # no group, or one without a limit
        return free


class Copies:
    """Makes tensors for copies: in memory, or in the first directory of `nvme`, in files without a
    name. The system writes those back when memory is short, and frees them with the tensor. Where
    the directory cannot take them and memory can, they are in memory."""

    def __init__(self, nvme: Any) -> None:
        given = nvme.split(",") if isinstance(nvme, str) else nvme
        given = [given] if isinstance(given, os.PathLike) else given or []
        is_list = isinstance(given, Collection) and all(
            isinstance(each, (str, os.PathLike)) for each in given
        )
        lib.require(is_list, "options: nvme", nvme, "a directory, or a list of them")
        self._directory: Optional[str] = os.path.abspath(next(iter(given))) if given else None

    def new(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        count = math.prod(shape)
        if self._directory is None or count == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        try:
            return self._on_drive(shape, dtype, count)
        except OSError as error:
            free = _free_memory()
            if 2 * count * dtype.itemsize < free:
                return torch.empty(tuple(shape), dtype=dtype)
            raise lib.DriveError(
                f"copy of state: {self._directory}: {error.strerror or error}, and memory has only "
                f"{free >> 20} MiB left (free space in that directory, or make it again; the state "
                "in the store is as before)"
            ) from error

    def _on_drive(self, shape: Sequence[int], dtype: torch.dtype, count: int) -> torch.Tensor:
        file, path = tempfile.mkstemp(dir=self._directory, prefix="copy-")
        try:
            os.posix_fallocate(file, 0, count * dtype.itemsize)  # a full drive is an error here
            mapped = torch.from_file(path, shared=True, size=count, dtype=dtype)
        finally:
            os.close(file)
            os.unlink(path)
        return mapped.view(tuple(shape))

    def of(
        self, store: Store, plane: str, wanted: Mapping[str, tuple[torch.Size, torch.dtype]]
    ) -> dict[str, torch.Tensor]:
        """Copies of one plane of trained tensors, those of `wanted` that there are."""
        found: dict[str, torch.Tensor] = {}

        def visit(name: str, first: int, values: "np.ndarray") -> None:
            if name not in wanted:
                return
            if name not in found:
                found[name] = self.new(*wanted[name])
            part = found[name].view(-1)[first : first + values.size]
            copy_alone(part, torch.from_numpy(values))

        store.visit(plane, visit)
        return found


def check_values(plane: str, name: str, values: Any, shape: torch.Size) -> None:
    """Throws where they are no tensor of that shape with values of its own."""
    if not isinstance(values, torch.Tensor):
        raise lib.ConfigError(f"load: {plane} of {name}: a {type(values).__name__} (give a tensor)")
    require_values(values, torch.nn.Module.load_state_dict)
    if values.shape != shape and not (values.numel() == 1 and shape.numel() == 1):
        raise lib.ConfigError(
            f"load: {plane} of {name}: shape {tuple(values.shape)} is given, it has {tuple(shape)} "
            "(give those of this model)"
        )
    if values.device.type == "meta" or values.layout != torch.strided or values.is_complex():
        raise lib.ConfigError(
            f"load: {plane} of {name}: {values.dtype} on {values.device}, {values.layout} (give a "
            "dense tensor of real numbers with values)"
        )


def check_planes(
    planes: Mapping[str, Optional[Tensors]],
    shapes: Mapping[str, torch.Size],
    updated: Collection[str],
) -> None:
    """Throws where values cannot be loaded, before anything is lost.

    shapes: of what is in the store, by name. updated: names that have moments, which must be given."""
    for plane, tensors in planes.items():
        for name, values in (tensors or {}).items():
            if name not in shapes:
                raise lib.ConfigError(
                    f"load: {plane} of {name}: it is not in the store (give names of its own)"
                )
            check_values(plane, name, values, shapes[name])
        if plane == "weights" or tensors is None:
            continue
        for name in updated:
            if name not in tensors:
                raise lib.ConfigError(
                    f"load: {name}: it has no {plane} (give it for all that are trained)"
                )


def fill_of(tensors: Tensors) -> Callable[[str, int, "np.ndarray"], None]:
    """What Store.load() asks for: elements from `first` on, float32."""

    def fill(name: str, first: int, out: "np.ndarray") -> None:
        values = tensors[name].detach().reshape(-1) if name in tensors else torch.empty(0)
        if first + out.size > values.numel():
            raise lib.ConfigError(
                f"load: {name}: {values.numel()} values are given, it has {first + out.size} or more "
                "(give those of this model)"
            )
        copy_alone(torch.from_numpy(out), values[first : first + out.size])

    return fill
