# SPDX-License-Identifier: Apache-2.0
"""A store of weights and optimizer state that the caller computes over."""

from __future__ import annotations

import atexit
import ctypes as c
import math
import os
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Sequence, Type, Union

from . import _library as lib
from ._callbacks import Guard, sinks_of
from ._device_memory import device_of
from ._ranks import Lent, Ranks, struct_of
from ._plan import Options, Plan, options_text, plan_of
from ._units import GroupUpdate, Statistics, StepResult, Unit, Use
from ._units import check_order, check_units, is_whole, set_source, step_result_of
from ._values import Initial, check_values, fill as fill_values, floats, real
from ._view import View

if TYPE_CHECKING:
    import numpy as np


class Store:
    """Weights, gradients and AdamW moments in memory and on drives, within budgets.

    units: the model, in the order of its forward.
    options: options of `strata train` by name: host_memory (of this store), nvme, recipe ("bf16" or
        "fp32"), accumulate, threads, betas, eps, weight_decay, decay_all, clip, freeze, groups, io,
        device, device_memory, plugin_path; a loaded store has each directory of nvme for itself;
        and for stores that share one state: ranks, zero_stage, shard_ranks, reduce_dtype.
    order: the uses of a micro-batch, where they are not every unit forward and then backward.
    may_leave_out: acquire() leaves out uses before the one that it is asked for.
    log: called with (level, line); level 1 is a warning. Threads of the library call it.

    A step is begin(), then for each of `accumulate` micro-batches acquire() of every unit, forward
    in order and backward in the opposite order, and step(), or discard() at any point:

        store.begin()
        for unit in names:
            with store.acquire(unit, "forward") as view:
                x = np.tanh(x @ view[unit + ".weight"].T)
        ...
        store.step(lr=1e-3)

    Threads: any, one call at a time. Raises subclasses of strata.Error.
    """

    def __init__(
        self,
        units: Iterable[Unit],
        options: Optional[Options] = None,
        *,
        order: Optional[Sequence[Use]] = None,
        may_leave_out: bool = False,
        log: Optional[Callable[[int, str], None]] = None,
    ) -> None:
        self._handle: Optional[int] = None
        self._view: Optional[View] = None
        self._others: list[View] = []  # of the acquired use
        self._stale: list[View] = []  # ended while arrays over them existed
        self._lent: Optional[Lent] = None
        self._device = device_of((options or {}).get("device"))
        self._units = list(units)
        check_units(self._units)
        check_order(order or ())
        self._uses = 2 * len(self._units) if order is None else len(order)
        self._names: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        self._infos: dict[str, lib.InfoStruct] = {}
        sinks, self._kept = sinks_of(log)
        handle = c.c_void_p()
        lib.call("store_open", options_text(options), c.byref(sinks), c.byref(handle))
        self._handle = handle.value
        try:
            for index, unit in enumerate(self._units):
                self._add(index, unit)
            if order is not None:
                self._declare(order, may_leave_out)
        except BaseException:
            self.close()
            raise

    def _add(self, index: int, unit: Unit) -> None:
        tensors = (lib.TensorStruct * len(unit.tensors))()
        frozen = unit.tensors if unit.frozen is True else unit.frozen or ()
        for i, (name, shape) in enumerate(unit.tensors.items()):
            sizes = (c.c_int64 * len(shape))(*shape)
            tensors[i] = lib.TensorStruct(
                name=lib.text_of(name, f"{unit.name}: tensors"),
                shape=sizes,
                rank=len(shape),
                frozen=int(name in frozen),
                group=unit.groups.get(name, 0),
            )
            if name in unit.sources:
                set_source(tensors[i], name, unit.sources[name])
            self._names[name] = (index, i, tuple(int(size) for size in shape))
        given = lib.UnitStruct(
            name=lib.text_of(unit.name, "units: name"),
            tensors=tensors,
            tensor_count=len(unit.tensors),
        )
        self._call("store_add_unit", c.byref(given), None)

    def _declare(self, order: Sequence[Use], may_leave_out: bool) -> None:
        uses = (lib.UseStruct * len(order))()
        for i, use in enumerate(order):
            numbers = [self._number(unit, "order") for unit in use.units]
            uses[i] = lib.UseStruct(
                units=(c.c_int32 * len(numbers))(*numbers),
                unit_count=len(numbers),
                pass_=_pass(use.which),
                seconds=use.seconds,
            )
        self._call("store_order", uses, len(order), int(may_leave_out))

    def _number(self, unit: Union[int, str], call: str) -> int:
        if isinstance(unit, int):
            lib.require(is_whole(unit, 32), f"{call}: unit", unit, "its name, or its number from 0")
            return unit
        names = [each.name for each in self._units]
        if unit not in names:
            raise lib.ConfigError(f"{call}: {unit}: no such unit (they are {names})")
        return names.index(unit)

    def _call(self, name: str, *arguments: Any) -> None:
        if self._handle is None:
            raise lib.HandleError(f"{name}: the store is closed (make another)")
        try:
            lib.call(name, self._handle, *arguments)
        except lib.Error as error:
            raised = self._lent.raised if self._lent is not None else None
            if raised is None:
                raise
            if not isinstance(raised, Exception):  # KeyboardInterrupt, SystemExit
                raise raised from error
            raise error from raised

    def _find(self, name: str) -> tuple[int, int, tuple[int, ...], lib.InfoStruct]:
        if name not in self._names:
            raise lib.ConfigError(f"{name}: no unit has such a tensor (see Unit.tensors)")
        unit, tensor, shape = self._names[name]
        if name not in self._infos:
            info = lib.InfoStruct()
            self._call("store_tensor", unit, tensor, c.byref(info))
            self._infos[name] = info
        return unit, tensor, shape, self._infos[name]

    def join(self, ranks: Ranks) -> None:
        """With the option `ranks`: meets the other stores that share this one's state, before load(),
        and again after unload() or a failure. All of them then make the same calls in the same
        order, each with its own data; gradients are summed, and a step that one discards is
        discarded by all. Raises PeerError when another fails or is gone."""
        lent = Lent(ranks.transport) if ranks.transport is not None else None
        before, self._lent = self._lent, lent  # that of an earlier join, which is over
        if lent is not None:
            _LENT.add(self)
        self._call("store_join", c.byref(struct_of(ranks, lent)))
        del before

    def plan(self) -> Plan:
        """Where state lies and how long a step takes. Raises DoesNotFit with what would fit."""
        struct = lib.PlanStruct()
        self._call("store_plan", c.byref(struct))
        return plan_of(struct)

    def load(
        self,
        initial: Optional[Initial] = None,
        checkpoint: Optional[Union[str, "os.PathLike[str]"]] = None,
        *,
        exp_avg: Optional[Initial] = None,
        exp_avg_sq: Optional[Initial] = None,
        updates: int = 0,
    ) -> None:
        """Allocates memory and loads a state: `initial` weights, or a checkpoint that save() wrote. Between
        steps, it takes the memory and files of the state that is loaded.

        A checkpoint is verified before a state that is loaded is given up for it, by a store that
        is the only rank.

        Values are arrays by name, or a function (name, first, out) that fills out with the elements
        from `first` on, float32; when it returns False, load() ends and raises Interrupted.
        Tensors with a source need no initial weights. With a checkpoint, `initial` gives the frozen
        weights alone. `exp_avg` and `exp_avg_sq` are moments that have seen `updates` updates;
        without them moments are zero.
        """
        if checkpoint is not None:
            check_checkpoint(checkpoint)
        shapes = {name: shape for name, (_, _, shape) in self._names.items()}
        sourced = {name for unit in self._units for name in unit.sources}
        needed = [] if checkpoint is not None else [name for name in shapes if name not in sourced]
        check_values("weights", initial, shapes, needed)
        check_values("exp_avg", exp_avg, shapes)
        check_values("exp_avg_sq", exp_avg_sq, shapes)
        self._forget_views("load")
        if (exp_avg is None) != (exp_avg_sq is None):
            raise lib.UsageError("load: one of exp_avg and exp_avg_sq alone (give both or none)")
        planes = [initial, exp_avg, exp_avg_sq]
        guarded = Guard()
        tensors = [list(unit.tensors) for unit in self._units]

        def fill(
            _: Any, plane: int, unit: int, tensor: int, first: int, count: int, out: int
        ) -> int:
            return guarded(
                lambda: fill_values(planes[plane], tensors[unit][tensor], first, count, out)
            )

        lib.require(is_whole(updates), "load: updates", updates, "a number from 0")
        struct = lib.LoadStruct(updates=updates, fills_moments=int(exp_avg is not None))
        if checkpoint is not None:
            struct.checkpoint = lib.path_of(checkpoint, "load: checkpoint")
        if initial is not None:
            struct.fill = lib.FILL(fill)
        with guarded:
            self._call("store_load", c.byref(struct))

    def begin(self) -> None:
        """Begins a step."""
        self._call("store_begin")

    def acquire(self, unit: Union[int, str], which: str, stream: Optional[int] = None) -> View:
        """Waits until a unit is in memory for its "forward" or "backward".

        Where the store has a device, `stream` is a stream of it, such as the address of a CUDA stream
        (0: the default one). Then nothing is waited for: work that is issued to the stream from now
        on finds the unit there, and what was issued until release() is waited for by whatever uses
        the memory next.
        """
        number = self._number(unit, "acquire")
        struct = lib.ViewStruct()
        if stream is None:
            self._call("store_acquire", number, _pass(which), c.byref(struct))
        else:
            self._call("store_acquire_on", number, _pass(which), stream, c.byref(struct))
        self._view = View(self, number, struct, stream)
        return self._view

    def used(self, unit: Union[int, str]) -> View:
        """Another unit of the acquired use, valid as long."""
        number = self._number(unit, "used")
        struct = lib.ViewStruct()
        self._call("store_used", number, c.byref(struct))
        stream = self._view._stream if self._view is not None else None
        self._others.append(View(self, number, struct, stream))
        return self._others[-1]

    def end_micro_batch(self) -> None:
        """Leaves out the rest of a micro-batch, where the order allows that."""
        self._call("store_end_micro_batch")

    def begin_forward(self) -> None:
        """Begins a micro-batch of forward uses alone, between steps."""
        self._call("store_begin_forward")

    def end_forward(self) -> None:
        """Ends it."""
        self._call("store_end_forward")

    def use_seconds(self) -> list[float]:
        """The seconds from acquire() to release() of each use in the last step: Use.seconds."""
        seconds = (c.c_double * self._uses)()
        self._call("store_use_seconds", seconds, self._uses)
        return list(seconds)

    def release(self) -> None:
        """Gives the acquired unit back. Raises UsageError while an array over it exists."""
        held = self._free_views()
        if held is not None:
            raise lib.UsageError(
                f"release: {self._units[held._unit].name}: an array or tensor over it is in use "
                "(delete it, or keep a copy)"
            )
        self._call("store_release")
        self._view = None
        self._others = []

    def step(
        self,
        lr: float,
        *,
        clip: Optional[float] = None,
        weight_decay: Optional[float] = None,
        groups: Sequence[GroupUpdate] = (),
        gradient_scale: float = 1.0,
    ) -> StepResult:
        """Ends the step with an AdamW update. `clip` and `weight_decay` replace the options, and
        `groups` gives the settings of tensors with Unit.groups. Gradients are those of a loss that
        was multiplied by `gradient_scale`: the norm, clipping and the update are of gradients
        divided by it."""
        for each in groups:
            lib.require(isinstance(each, GroupUpdate), "step: groups", each, "a GroupUpdate")
        settings = [lib.GroupStruct(lr=each.lr, weight_decay=each.weight_decay) for each in groups]
        lib.require(gradient_scale != 0, "step: gradient_scale", gradient_scale, "1 for no scale")
        update = lib.UpdateStruct(
            lr=lr, group_count=len(settings), gradient_scale=gradient_scale
        )
        if settings:
            update.groups = (lib.GroupStruct * len(settings))(*settings)
        if clip is not None:
            update.has_clip, update.clip = 1, clip
        if weight_decay is not None:
            update.has_decay, update.weight_decay = 1, weight_decay
        result = lib.StepStruct()
        self._call("store_step", c.byref(update), c.byref(result))
        return step_result_of(result)

    def discard(self) -> None:
        """Ends the step at any point without an update. Arrays that are left must not be used."""
        self._call("store_discard")
        self._set_aside()

    def save(self, directory: Union[str, "os.PathLike[str]"]) -> str:
        """Writes a checkpoint below the directory and returns its path."""
        path = c.c_char_p()
        self._call("store_save", lib.path_of(directory, "save"), c.byref(path))
        return os.fsdecode(path.value or b"")

    def read(self, name: str, plane: str = "weights") -> "np.ndarray":
        """A copy of a trained tensor's "weights", "exp_avg" or "exp_avg_sq", float32."""
        import numpy as np

        unit, tensor, shape, info = self._find(name)
        values = np.empty(info.count, np.float32)
        self._call(
            "store_read_tensor", unit, tensor, _plane(plane), values.ctypes.data, info.count
        )
        return values.reshape(shape)

    def write(self, name: str, values: "np.ndarray", plane: str = "weights") -> None:
        """Replaces a trained tensor's "weights", "exp_avg" or "exp_avg_sq" by `values` of its shape,
        between steps. Other planes and the number of updates stay. Of several ranks, all write the
        same."""
        import numpy as np

        unit, tensor, shape, info = self._find(name)
        given = np.asarray(real(values, f"write: {name}"), np.float32, order="C")
        if given.shape != shape:
            raise lib.ConfigError(f"write: {name}: shape {given.shape} (give one of {shape})")
        self._call(
            "store_write_tensor", unit, tensor, _plane(plane), 0, info.count, given.ctypes.data
        )

    def state(self, plane: str = "weights") -> "dict[str, np.ndarray]":
        """Copies of one plane of all trained tensors by name, float32."""
        import numpy as np

        found: dict[str, Any] = {}

        def copy(name: str, first: int, values: "np.ndarray") -> None:
            if name not in found:
                found[name] = np.empty(math.prod(self._names[name][2]), np.float32)
            found[name][first : first + values.size] = values

        self.visit(plane, copy)
        return {name: values.reshape(self._names[name][2]) for name, values in found.items()}

    def visit(self, plane: str, take: Callable[[str, int, "np.ndarray"], Any]) -> None:
        """Calls take(name, first, values) for the pieces of one plane of all trained tensors, with
        the elements from `first` on, float32, which are valid until it returns."""
        tensors = [list(unit.tensors) for unit in self._units]
        guarded = Guard()

        def visit(
            _: Any, _plane: int, unit: int, tensor: int, first: int, count: int, values: int
        ) -> int:
            def hand_on() -> None:
                take(tensors[unit][tensor], first, floats(values, count))

            return guarded(hand_on)

        with guarded:
            self._call("store_read", _plane(plane), lib.FILL(visit), None)

    def statistics(self) -> Statistics:
        """Counts of what was done and moved. Not within a step."""
        struct = lib.StatisticsStruct()
        self._call("store_statistics", c.byref(struct))
        names = [field[0] for field in lib.StatisticsStruct._fields_[1:]]
        return Statistics(**{name: getattr(struct, name) for name in names})

    def unload(self) -> None:
        """Frees the memory; load() may be called again."""
        self._forget_views("unload")
        self._call("store_unload")

    def _views(self) -> list[View]:
        return [*([self._view] if self._view else []), *self._others]

    def _free_views(self) -> Optional[View]:
        """Frees those of the acquired use, or none of them where an array is left over the one that it returns."""
        views = self._views()
        for number, view in enumerate(views):
            if not view._free():
                for other in views[:number]:
                    other._show()
                return view
        return None

    def _set_aside(self) -> None:
        self._stale += [view for view in self._views() if not view._free()]
        self._view = None
        self._others = []

    def _forget_views(self, name: str) -> None:
        """Raises while an array over memory that is freed next exists."""
        self._stale = [view for view in self._stale if not view._free()]
        if self._stale or self._free_views() is not None:
            raise lib.UsageError(f"{name}: an array or tensor over a unit is in use (delete it)")
        self._set_aside()

    def close(self) -> None:
        """Ends the store. Raises UsageError while an array over a unit exists."""
        if self._handle is None:
            return
        self._forget_views("close")
        self._call("store_close")
        self._handle = None

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self.close()
        except lib.UsageError:  # the frames of an exception hold arrays; __del__ closes later
            if error is None:
                raise

    def __del__(self) -> None:
        if self._handle is None:  # also at the interpreter's end, when modules are gone
            return
        # Memory that arrays still show is never freed: the handle stays open.
        self._set_aside()
        if all(view._free() for view in self._stale):
            lib.close_quietly("store_close", self._handle)


# Stores whose transport calls Python, which needs its threads until they are closed.
_LENT: "weakref.WeakSet[Store]" = weakref.WeakSet()


@atexit.register
def _close_lent() -> None:
    for store in list(_LENT):
        lib.close_quietly("store_close", store._handle)
        store._handle = None


def check_checkpoint(path: Union[str, "os.PathLike[str]"]) -> None:
    if not os.path.isfile(os.path.join(os.fspath(path), "manifest.json")):
        raise lib.ConfigError(
            f"load: checkpoint {os.fspath(path)}: it is no directory with a manifest.json (give "
            "a path that save() returned)"
        )


def _pass(name: str) -> int:
    if name not in ("forward", "backward"):
        raise lib.UsageError(f"pass: {name}: unknown (give forward or backward)")
    return lib.BACKWARD if name == "backward" else lib.FORWARD


def _plane(name: str) -> int:
    if name not in lib.PLANES:
        raise lib.UsageError(f"plane: {name}: unknown (give one of {list(lib.PLANES)})")
    return lib.PLANES[name]
