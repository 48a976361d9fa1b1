# SPDX-License-Identifier: Apache-2.0
"""Uses of units of a store, in the order that it knows."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

import torch
from torch import nn

from .. import _library as lib
from .._store import Store
from .._units import Use
from .._view import View
from ._binder import drop_gradient, gradient_of, set_values, take_away
from ._device import Streams, tensor_over
from ._parts import Part
from ._ranks import Ranks
from ._refusals import refuse_parallel
from ._saved import Slot

KEPT = "(kept)"  # the unit of parameters that are in memory for a micro-batch


class StoreUses:
    """Begins and ends steps, micro-batches and passes without a backward as the model needs them.

    A step begins with the first forward that is not an evaluation, and a micro-batch where a use is
    asked for that this one does not have any more. Uses that are not asked for are left out.
    """

    def __init__(
        self,
        model: nn.Module,
        store: Store,
        order: Sequence[Use],
        parameters: Mapping[str, nn.Parameter],
        micro_batches: int,
        begins_without_gradients: bool,
        ranks: Ranks,
        device: torch.device,
    ) -> None:
        self.mode: Optional[str] = None  # "step", "forward"
        self.passed_over = 0  # uses of this step that were begun and left out
        self._has_passed = False  # whether a gradient of this step is in the store
        self._model = model
        self._store = store
        self._order = order
        self._parameters = parameters
        self._micro_batches = micro_batches
        self._begins_without_gradients = begins_without_gradients
        self._ranks = ranks
        self._device = device
        self._streams = Streams(device)
        self._keeps = bool(order) and order[0].units == [KEPT]
        self._kept_names = [
            name for unit in store._units if unit.name == KEPT for name in unit.tensors
        ]
        self._position = 0  # in the order, of the next use
        self._micro_batch = 0
        self._split_by = ""  # the unit whose forward was another one before a backward

    def has_kept(self) -> bool:
        return self.mode is not None

    def is_in_step(self) -> bool:
        return self.mode == "step"

    def has_gradients(self) -> bool:
        """Whether this step has a gradient, in the store or of what is kept."""
        return self._has_passed or any(
            gradient_of(self._parameters[name]) is not None for name in self._kept_names
        )

    def enter(self) -> None:
        if self.mode is None:
            self._begin()

    def enter_forward(self) -> None:
        """Begins a pass that only reads weights, whether or not the model trains. None has begun."""
        self._begin_as("forward")

    def acquire(self, units: list[str], which: str) -> dict[str, Slot]:
        index = self._find(units, which)
        if index is None and which == "forward":
            self._begin_again(units[0])
            index = self._find(units, which)
        if index is None:
            raise lib.UsageError(self._out_of_turn(units, which))
        return self._acquire(index)

    def extend(self, part: Part) -> dict[str, Slot]:
        raise lib.ConfigError(
            f"offload: {part.name}: it computes while another part does, which the example did not "
            "show (show it there; after an interrupted step, discard it first)"
        )

    def release(self, which: str) -> Optional[dict[str, Slot]]:
        self._streams.release(self._store)
        return None

    def discard(self) -> None:
        self._forget_kept()
        mode = self.mode
        self.end_step()
        try:
            if mode is not None:
                self._store.discard()
        except lib.UsageError:
            pass  # an interrupt came before the store had begun

    def end_step(self) -> None:
        """The store has ended the step."""
        self.mode, self._has_passed = None, False
        self._ranks.begin_step()

    def end_forward(self) -> None:
        """Ends a pass without a backward, if there is one."""
        if self.mode == "forward":
            self._forget_kept()
            self.mode = None
            self._store.end_forward()

    def each_forward(self, visit: Callable[[str, torch.Tensor], Any]) -> None:
        """Calls visit(name, weights) for the units of a pass without a backward, use by use."""
        for index in range(self._position, len(self._order)):
            if self._order[index].which == "forward":
                self._visit(index, visit)
                self._streams.release(self._store)

    def _visit(self, index: int, visit: Callable[[str, torch.Tensor], Any]) -> None:
        for slot in self._acquire(index).values():
            for name, weights in slot.weights.items():
                visit(name, weights)

    def end_micro_batch(self) -> None:
        """Passes the gradients of what is kept to the store."""
        if self._keeps and self.mode == "step":
            if self._order[-1].units == [KEPT] and self._position < len(self._order):
                slot = self._acquire(len(self._order) - 1)[KEPT]
                for name in self._kept_names:
                    gradient = gradient_of(self._parameters[name])
                    if gradient is not None:
                        slot.add(name, gradient)
                    drop_gradient(self._parameters[name])
                del slot
                self._streams.release(self._store)
        self._forget_kept()

    def _begin(self) -> None:
        is_step = torch.is_grad_enabled() or (
            self._model.training and self._begins_without_gradients
        )
        if is_step and self._ranks.are_one():
            refuse_parallel()
        self._begin_as("step" if is_step else "forward")

    def _begin_as(self, mode: str) -> None:
        self.mode = mode
        begin = self._store.begin if mode == "step" else self._store.begin_forward
        try:
            begin()
        except lib.UsageError:  # an interrupt came after the store had begun
            self._store.discard()
            begin()
        self._micro_batch = self.passed_over = 0
        self._split_by = ""
        self._begin_micro_batch()

    def _begin_micro_batch(self) -> None:
        self._position = 0
        if self._keeps:
            slot = self._acquire(0)[KEPT]
            for name in self._kept_names:
                set_values(self._parameters[name], slot.weights[name].clone())
            del slot
            self._streams.release(self._store)

    def _begin_again(self, unit: str) -> None:
        """The next micro-batch or pass, of which the unit's forward is the first."""
        if self.mode == "forward":
            self.end_forward()
            self._begin()
            return
        if not self.has_gradients():  # a forward without a backward
            self.discard()
            self._begin()
            return
        if not torch.is_grad_enabled() and not self._model.training:
            raise lib.UsageError(
                "offload: an evaluation within a step (evaluate after optimizer.step(), or drop the "
                "step with zero_grad())"
            )
        if self._position > 0 and self._order[self._position - 1].which == "forward":
            self._split_by = self._split_by or unit  # before the backward of the micro-batch
        if self._micro_batch + 1 == self._micro_batches:
            if self._split_by:
                raise lib.UsageError(self._too_often(self._split_by))
            raise lib.UsageError(
                f"offload: a forward after the last of {self._micro_batches} micro-batches (call "
                "optimizer.step(), or zero_grad() to drop the step; the option accumulate is the "
                "number of micro-batches)"
            )
        self.end_micro_batch()
        self._store.end_micro_batch()
        self._micro_batch += 1
        self._begin_micro_batch()

    def _find(self, units: list[str], which: str) -> Optional[int]:
        if self.mode is None or (self.mode == "forward" and which == "backward"):
            return None
        for index in range(self._position, len(self._order)):
            use = self._order[index]
            if use.which == which and all(unit in use.units for unit in units):
                return index
        return None

    def _acquire(self, index: int) -> dict[str, Slot]:
        use = self._order[index]
        while True:  # uses before it that begin alike are left out one by one
            view = self._streams.acquire(self._store, use.units[0], use.which)
            while self._order[self._position].which != use.which or (
                self._order[self._position].units[0] != use.units[0]
            ):
                self._position += 1
            self._position += 1
            if self._position == index + 1:
                break
            del view
            self._streams.release(self._store)
            self.passed_over += 1
        views = [view, *[self._store.used(unit) for unit in use.units[1:]]]
        return {unit: self._slot(each) for unit, each in zip(use.units, views)}

    def _slot(self, view: View) -> Slot:
        memory = tensor_over(view._buffers["weights"], self._device)
        weights = {}
        for name in self._store._units[view._unit].tensors:
            parameter = self._parameters[name]
            info = self._store._find(name)[3]
            typed = memory.view(parameter.dtype)[info.offset : info.offset + info.count]
            weights[name] = typed.view(parameter.shape)

        def add(name: str, gradient: torch.Tensor) -> None:
            self._has_passed = True
            mean = self._ranks.mean(name, gradient)
            tensor_over(view.gradient(name), self._device).view(gradient.shape).add_(mean)

        return Slot(memory, weights, add)

    def _forget_kept(self) -> None:
        for name in self._kept_names:
            take_away(self._parameters[name])
            drop_gradient(self._parameters[name])

    def _too_often(self, unit: str) -> str:
        count = sum(unit in use.units for use in self._order if use.which == "forward")
        return (
            f"offload: {unit}: another forward before the backward of a micro-batch, of which the example "
            f"has {count}, counts as one of the {self._micro_batches} micro-batches, and none of them is left "
            "(give an example with the most forwards that a micro-batch has, such as the longest "
            "sequence; zero_grad() drops the step)"
        )

    def _out_of_turn(self, units: list[str], which: str) -> str:
        if self.mode is None:
            return (
                f"offload: {units[0]}: a {which} without a forward in this step (its step has ended: "
                "compute the loss again)"
            )
        if self.mode == "forward" and which == "backward":
            return (
                f"offload: backward of {units[0]} after a forward without gradients, which began another "
                "pass (compute the loss again; or give an example that has both forwards)"
            )
        following = [f"{use.which} of {use.units[0]}" for use in self._order[self._position :]]
        return (
            f"offload: {which} of {units[0]} was asked for, but the example has "
            f"{following[0] if following else 'nothing'} next (give an example with this order, and as many "
            "uses of each module, such as the longest sequence)"
        )
