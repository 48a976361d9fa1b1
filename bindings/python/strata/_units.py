# SPDX-License-Identifier: Apache-2.0
"""What a store is made of and what it says: units, their uses, settings and results of a step."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Collection, Iterable, Mapping, Optional, Sequence, SupportsIndex, Union

from . import _library as lib


@dataclass(frozen=True)
class Source:
    """A file that has a tensor's initial weights from byte `offset` on, row-major and without gaps.

    dtype: "float32", "bfloat16" or "float16"; None: that of the weights."""

    path: Union[str, "os.PathLike[str]"]
    offset: int = 0
    dtype: Optional[str] = None


@dataclass(frozen=True)
class Unit:
    """A part of a model whose weights are used together, such as a layer.

    name: unique within the store.
    tensors: shapes by name; names are unique within the store.
    frozen: True, or the names of tensors that are not trained; they have no gradient and are not in
        checkpoints.
    groups: numbers of groups by name, from 1; step() has settings for each.
    sources: files with initial weights by name, which load() then reads by itself.
    """

    name: str
    tensors: Mapping[str, Sequence[int]]
    frozen: Union[bool, Collection[str]] = False
    groups: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupUpdate:
    """Settings of the tensors of a group in a step. All of them have the weight decay."""

    lr: float
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Use:
    """A use in a micro-batch: units in memory together, for one pass, "forward" or "backward".

    units: names of units; acquire() takes the first, used() gives the others.
    seconds: how long the caller computes, for the plan; Store.use_seconds() measures it.
    """

    units: Sequence[str]
    which: str
    seconds: float = 0.0


@dataclass(frozen=True)
class StepResult:
    """step: counted from 1. grad_norm: of all gradients, before clipping. applied: False when a
    gradient was not finite and nothing was updated. loss: mean, nats; 0 for a store. left_out: uses
    of a store that the caller left out in this step, forward and backward, of all micro-batches."""

    step: int
    grad_norm: float
    applied: bool
    loss: float = 0.0
    left_out: int = 0


@dataclass(frozen=True)
class Statistics:
    """Counts since load: bytes of memory and scratch, bytes moved since they were allocated, and times
    of the last step."""

    steps: int
    updates: int
    host_bytes: int
    nvme_bytes: int
    nvme_bytes_read: int
    nvme_bytes_written: int
    last_step_s: float
    last_stall_s: float
    device_bytes: int = 0


def step_result_of(struct: lib.StepStruct) -> StepResult:
    return StepResult(
        step=struct.step,
        grad_norm=struct.grad_norm,
        applied=bool(struct.applied),
        loss=struct.loss,
        left_out=struct.left_out,
    )


def set_source(tensor: lib.TensorStruct, name: str, source: Source) -> None:
    if source.dtype is not None and source.dtype not in lib.DTYPES:
        raise lib.ConfigError(
            f"{name}: source: dtype {source.dtype} (give one of {list(lib.DTYPES)})"
        )
    tensor.source = lib.path_of(source.path, f"{name}: source")
    tensor.source_offset = source.offset
    tensor.source_dtype = lib.DTYPES[source.dtype] if source.dtype is not None else 0


def is_whole(value: Any, bits: int = 64) -> bool:
    """Whether it is a number of so many bits, of which the library would see no more."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        return False
    return -(1 << bits - 1) <= value.__index__() < 1 << bits - 1


def _check_kinds(unit: Unit) -> None:
    where = str(unit.name)
    for what in ("tensors", "groups", "sources"):
        given = getattr(unit, what)
        lib.require(isinstance(given, Mapping), f"{where}: {what}", given, "values by name")
    for name, shape in unit.tensors.items():
        is_shape = isinstance(shape, Iterable) and all(is_whole(size) for size in shape)
        lib.require(is_shape, f"{name}: shape", shape, "a list of sizes")
    for name, group in unit.groups.items():
        lib.require(is_whole(group, 32), f"{name}: group", group, "a number from 1")
    for name, source in unit.sources.items():
        lib.require(isinstance(source, Source), f"{name}: source", source, "a Source")
    is_list = isinstance(unit.frozen, (bool, Collection)) and not isinstance(unit.frozen, str)
    lib.require(is_list, f"{where}: frozen", unit.frozen, "a list of names, or True")


def check_units(units: Sequence[Unit]) -> None:
    """Throws where a unit is of other things than Unit says, or names a tensor that none has. Units
    may share dictionaries."""
    for unit in units:
        lib.require(isinstance(unit, Unit), "units", unit, "each as a Unit")
        _check_kinds(unit)
    names = {name for unit in units for name in unit.tensors}
    for unit in units:
        frozen = () if isinstance(unit.frozen, bool) else unit.frozen
        for what, given in (("frozen", frozen), ("groups", unit.groups), ("sources", unit.sources)):
            for name in given:
                if name not in names:
                    raise lib.ConfigError(
                        f"{unit.name}: {what}: {name}: no unit has such a tensor (see Unit.tensors)"
                    )


def check_order(order: Sequence[Use]) -> None:
    for use in order:
        lib.require(isinstance(use, Use), "order", use, "each as a Use")
        is_list = isinstance(use.units, Collection) and not isinstance(use.units, str)
        lib.require(is_list, "order: units", use.units, "a list of names")
