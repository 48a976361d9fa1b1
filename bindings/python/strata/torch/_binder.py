# SPDX-License-Identifier: Apache-2.0
"""Hooks that have a part's weights in memory while it computes, and take its gradients.

A part is bound from its forward pre-hook to its forward hook, and in the backward from the gradient
of one of its outputs to the next part or the end of the backward. Recomputation of a checkpointed
region happens in the backward, while the part is bound. What autograd saves of weights is packed as
a reference to its unit, so that nothing holds a unit's memory from forward to backward.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable, Iterable, Mapping, Optional, Protocol

import torch
from torch import nn

from .. import _library as lib
from ._autograd import (
    at_end_of_backward,
    current_backward,
    in_backward,
    saved_tensors_hooks_around,
    uncompiled,
)
from ._guard import unguarded, writable
from ._habits import StoredParameter
from ._parts import Part, tensors_in
from ._refusals import refuse_second_derivatives, refuse_transforms, refuse_written
from ._saved import Packing, Reference, Slot, reference_to, unit_of


class Uses(Protocol):
    """Brings units to memory. One use at a time."""

    def enter(self) -> None:
        """The model computes forward; it may need what is kept for a micro-batch."""

    def acquire(self, units: list[str], which: str) -> dict[str, Slot]:
        """The units of the next use that has these."""

    def extend(self, part: Part) -> dict[str, Slot]:
        """More units for the current use."""

    def release(self, which: str) -> Optional[dict[str, Slot]]:
        """Ends the use, or returns its units again where tensors over them are left."""

    def discard(self) -> None:
        """Drops what has begun."""

    def has_kept(self) -> bool:
        """Whether what is kept for a micro-batch is in memory."""

    def is_in_step(self) -> bool:
        """Whether a forward with gradients has begun since the last step."""

    def has_gradients(self) -> bool:
        """Whether this step has one."""


_GRADIENT: Any = torch.Tensor.grad  # for parameters whose class hides it


def set_values(parameter: torch.Tensor, values: torch.Tensor) -> None:
    with writable(), unguarded():
        parameter.data = values


def gradient_of(parameter: torch.Tensor) -> Optional[torch.Tensor]:
    with unguarded():
        gradient: Optional[torch.Tensor] = _GRADIENT.__get__(parameter)
    return gradient


def versions_of(parameters: Mapping[str, torch.Tensor], names: Iterable[str]) -> dict[str, int]:
    """Numbers that change when the values of a parameter are written."""
    with unguarded():
        return {name: parameters[name]._version for name in names}


def weakly(method: Callable[[torch.Tensor], None]) -> Callable[[torch.Tensor], None]:
    """A method that does not keep its object: Python's garbage collector does not see what hooks of
    parameters hold."""
    reference = weakref.WeakMethod(method)

    def call(parameter: torch.Tensor) -> None:
        known = reference()
        if known is not None:
            known(parameter)

    return call


def set_gradient(parameter: torch.Tensor, gradient: Optional[torch.Tensor]) -> None:
    _GRADIENT.__set__(parameter, gradient)


def drop_gradient(parameter: torch.Tensor) -> None:
    set_gradient(parameter, None)


class Binder:
    """The parameters of a model whose values lie in units.

    parameters: by name. unit_of: of the parameters that are in units. kept: those that are in memory
    for a whole micro-batch; their gradients are left to whoever keeps them.
    """

    def __init__(
        self,
        model: nn.Module,
        parts: list[Part],
        parameters: Mapping[str, nn.Parameter],
        unit_of: Mapping[str, str],
        device: torch.device,
    ) -> None:
        self.parameters = parameters
        self.unit_of = unit_of
        self._device = device
        self.kept: set[str] = set()
        self.uses: Uses
        self.bound: dict[str, Slot] = {}
        self._which = "forward"
        self._open: list[Part] = []  # whose forward is under way
        self._is_model_open = False
        self._packing: list[Optional[Packing]] = []
        self._failed = False
        self._has_bound = False  # whether the forward that is under way has used weights
        self._backwards: set[int] = set()  # which have not ended
        self._versions: dict[str, int] = {}  # of bound weights
        self._guards = False
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._hooks = [
            model.register_forward_pre_hook(self._before_model, prepend=True),
            model.register_forward_hook(self._after_model, always_call=True),
        ]
        for part in parts:
            self._hook(part)
        for parameter in parameters.values():
            if parameter.requires_grad:
                take: Any = parameter.register_post_accumulate_grad_hook
                self._hooks.append(take(weakly(self._take_gradient)))

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._set_class(self.parameters, nn.Parameter)
        for parameter in self.parameters.values():
            for own in ("home", "_is_off"):  # which pickle would save with it, and all that they refer to
                vars(parameter).pop(own, None)

    def guard(self) -> None:
        """From now on, reads of weights that are not in memory are errors."""
        self._guards = True
        for name in [*self.unit_of, *self.kept]:
            setattr(self.parameters[name], "home", weakref.proxy(self))
        self._set_class([*self.unit_of, *self.kept], StoredParameter)

    def _set_class(self, names: Iterable[str], kind: type[nn.Parameter]) -> None:
        """Weights of modules that compute are plain parameters, as torch.compile wants them."""
        for name in names if self._guards else ():
            setattr(self.parameters[name], "__class__", kind)

    def is_away(self, parameter: torch.Tensor) -> bool:
        """Whether its values are not in memory."""
        name = self._names.get(id(parameter))
        if name is None:
            return False
        if name in self.kept:
            return not self.uses.has_kept()
        return self.unit_of.get(name) not in self.bound

    def is_kept(self, parameter: torch.Tensor) -> bool:
        return self.name_of(parameter) in self.kept

    def is_in_step(self) -> bool:
        return self.uses.is_in_step()

    def name_of(self, parameter: torch.Tensor) -> str:
        return self._names.get(id(parameter), "")

    def is_broken(self) -> bool:
        """Whether an exception or an interrupt left a forward or a backward open."""
        is_forward = self._failed or self._is_model_open or bool(self._open)
        return is_forward or bool(self._backwards)

    def refuse_broken(self, call: str) -> None:
        """Throws where an exception left a step whose gradients would be lost or half counted."""
        if self.is_broken() and self.uses.has_gradients():
            raise lib.UsageError(
                f"offload: {call} after an exception or interrupt in a micro-batch of this step "
                "(call optimizer.zero_grad() to drop the step, and compute all of it again)"
            )

    def _mend(self, call: str) -> None:
        self.refuse_broken(call)
        self.discard()

    # ---- Forward

    @uncompiled
    def _before_model(self, _module: nn.Module, _inputs: Any) -> None:
        self._checked(refuse_transforms)
        if in_backward():
            return
        if self._is_model_open or self._failed or self._backwards:
            self._mend("a forward")
        self._is_model_open = True
        self.uses.enter()

    @uncompiled
    def _after_model(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        if not in_backward():
            self._is_model_open = self._has_bound = False
            self._failed = self._failed or self._has_raised(output)

    def _hook(self, part: Part) -> None:
        @uncompiled
        def before(_module: nn.Module, _inputs: Any) -> None:
            self._checked(refuse_transforms)
            if in_backward():  # recomputation
                self._follow()
                self.need(part, "backward")
                self._push()
                return
            if self._failed or self._backwards:
                self._mend(f"{part.name}: a forward")
            self._checked(lambda: self._begin_forward(part))
            self._open.append(part)
            self._push()

        @uncompiled
        def after(_module: nn.Module, inputs: Any, keywords: Any, output: Any) -> Any:
            if self._packing:
                self._pop()
            if not in_backward():
                if self._open:
                    self._open.pop()
                self._failed = self._failed or self._has_raised(output)
                output = self._own_memory(output)
                if not self._open:
                    self._has_bound = self._has_bound and self._is_model_open
                    self.unbind()
            given = {id(tensor) for tensor in tensors_in([inputs, keywords])}
            self._bind_before_backward(
                part, [each for each in tensors_in(output) if id(each) not in given]
            )
            return output

        self._hooks += [
            part.module.register_forward_pre_hook(before),
            part.module.register_forward_hook(after, with_kwargs=True, always_call=True),
        ]

    def _begin_forward(self, part: Part) -> None:
        self.uses.enter()
        self.need(part, "forward")
        self._has_bound = True

    def _checked(self, check: Callable[[], None]) -> None:
        """A forward that is refused before it has used weights leaves the step as it was."""
        try:
            check()
        except (lib.UsageError, lib.ConfigError) as error:
            if not self._has_bound:
                setattr(error, "refused_by", id(self))
            raise

    def _has_raised(self, output: Any) -> bool:
        """Whether a hook that is always called follows an exception within its module's forward."""
        kind, error, _ = sys.exc_info()
        return output is None and kind is not None and getattr(error, "refused_by", 0) != id(self)

    def _push(self) -> None:
        """Packs weights, unless that is done already. A checkpointed region saves nothing, and must
        see all that would be saved."""
        outer = saved_tensors_hooks_around()
        pack = outer[0] if outer else None
        there = getattr(pack, "__self__", None)
        # An interrupt may leave those of another model.
        is_there = isinstance(there, Packing) and there.binder is self
        is_region = getattr(pack, "__module__", "") == "torch.utils.checkpoint"
        self._packing.append(None if is_there or is_region else Packing(self, outer))
        for slot in self.bound.values():
            self._set_class(slot.weights, nn.Parameter)

    def _pop(self) -> None:
        packing = self._packing.pop()
        if packing is not None:
            packing.end()
        if not self._packing:
            for slot in self.bound.values():
                self._set_class(slot.weights, StoredParameter)

    def _own_memory(self, output: Any) -> Any:
        """Outputs that are views of weights must outlive them."""
        if isinstance(output, torch.Tensor):
            return output.clone() if self._slot_of(output) else output
        if type(output) in (list, tuple):
            return type(output)(self._own_memory(each) for each in output)
        return output

    # ---- Backward

    def _bind_before_backward(self, part: Part, outputs: list[torch.Tensor]) -> None:
        """Whichever output's gradient is known first begins the backward of the part."""
        begun = -1  # the backward that did; there may be several over one forward

        def bind(_gradient: torch.Tensor) -> None:
            nonlocal begun
            refuse_second_derivatives()
            if begun != current_backward():
                begun = current_backward()
                self._follow()
                self.need(part, "backward")

        for tensor in outputs:
            if tensor.requires_grad:
                tensor.register_hook(bind)  # type: ignore[no-untyped-call]

    def _follow(self) -> None:
        """Knows when the backward that runs has ended: what is bound then is unbound, unless it
        ran within another, as that of a reentrant checkpoint does."""
        now = current_backward()
        if now in self._backwards:
            return

        def ended() -> None:
            self._backwards.discard(now)
            if not self._backwards:
                self.unbind()

        self._backwards.add(now)
        at_end_of_backward(ended)

    def _take_gradient(self, parameter: torch.Tensor) -> None:
        refuse_second_derivatives()
        name = self._names[id(parameter)]
        self._follow()
        if name in self.kept:
            return
        gradient = gradient_of(parameter)
        drop_gradient(parameter)
        if gradient is None:
            return
        if name not in self.unit_of:
            raise lib.UsageError(
                f"offload: {name}: it has a gradient, but it is not in the store, since the example did "
                "not use it (give offload() an example that does or larger parts, or freeze it before)"
            )
        unit = self.unit_of[name]
        if unit not in self.bound or self._which != "backward":
            self._bind([unit], "backward")
        self.bound[unit].add(name, gradient)

    # ---- Weights

    def need(self, part: Part, which: str) -> None:
        """Brings the part's units to memory, unless they are there."""
        if self.bound and self._which == which and all(u in self.bound for u in part.units):
            return
        if not part.units:
            return
        if self._open or not self.unbind():
            if self._which != which:
                raise lib.ConfigError(
                    f"offload: {part.name}: tensors over weights of {list(self.bound)} are in use "
                    "after their forward (keep copies)"
                )
            self._show(self.uses.extend(part))
        else:
            self._bind(part.units, which)

    def _bind(self, units: list[str], which: str) -> None:
        self.unbind()
        self._which = which
        self._show(self.uses.acquire(units, which))

    def _show(self, slots: dict[str, Slot]) -> None:
        self.bound.update(slots)
        for slot in slots.values():
            for name, weights in slot.weights.items():
                set_values(self.parameters[name], weights)
            self._versions.update(versions_of(self.parameters, slot.weights))

    def _hide(self) -> None:
        for slot in self.bound.values():
            for name in slot.weights:
                take_away(self.parameters[name])
        self.bound = {}

    def unbind(self) -> bool:
        """Ends the use. False where tensors over its weights are left, which keeps it."""
        if not self.bound:
            return True
        names = [name for slot in self.bound.values() for name in slot.weights]
        now = versions_of(self.parameters, names)
        self._hide()
        if torch.is_autocast_enabled(self._device.type):
            torch.clear_autocast_cache()  # it would hold a cast copy of every weight
        left = self.uses.release(self._which)
        if left is not None:
            self._show(left)
        refuse_written(name for name in names if now[name] != self._versions[name])
        return left is None

    def discard(self) -> None:
        """Drops what has begun, as after an exception."""
        while self._packing:
            self._pop()
        self._open.clear()
        self._is_model_open = self._has_bound = self._failed = False
        self._backwards.clear()
        self._hide()
        for parameter in self.parameters.values():
            drop_gradient(parameter)
        self.uses.discard()

    def _slot_of(self, tensor: torch.Tensor) -> Optional[str]:
        return unit_of(tensor, self.bound) if tensor.device == self._device else None

    def reference_to(self, tensor: torch.Tensor) -> Optional[Reference]:
        return reference_to(tensor, self.bound) if tensor.device == self._device else None

    def weights_at(self, saved: Reference) -> torch.Tensor:
        if saved.unit not in self.bound:
            if in_backward():
                self._follow()
            self._bind([saved.unit], "backward")
        return saved.of(self.bound[saved.unit])


def take_away(parameter: torch.Tensor, device: Optional[torch.device] = None) -> None:
    """The values of a parameter that is not in memory are NaN. It moves to the device, if given."""
    with writable():
        where = parameter.device if device is None else device
        nan = torch.full((), float("nan"), dtype=parameter.dtype, device=where)
        set_values(parameter, nan.expand(parameter.shape))
