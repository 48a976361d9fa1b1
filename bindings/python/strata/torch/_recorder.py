# SPDX-License-Identifier: Apache-2.0
"""A first micro-batch, which shows in which order a model uses its parameters."""

from __future__ import annotations

import random
import threading
import time
import weakref
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Callable, ContextManager, Iterator, Mapping, Optional

import numpy as np
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from .. import _library as lib
from .._units import Use
from ._autograd import in_backward
from ._binder import (
    Binder,
    drop_gradient,
    gradient_of,
    set_gradient,
    versions_of,
)
from ._device import new_bytes, tensor_over
from ._parts import Part, tensors_in, unrepeated
from ._refusals import refuse_written
from ._saved import Slot
from ._source import Source

_ALIGNMENT = 64  # bytes


class Recorder:
    """Uses of units with weights from their source, which are read for each use, and how long they
    compute. Gradients are dropped, so that it takes the memory of activations and of one use."""

    def __init__(
        self,
        units: Mapping[str, list[str]],
        parameters: Mapping[str, nn.Parameter],
        source: Source,
        device: torch.device,
    ) -> None:
        self.uses: list[Use] = []
        self.begins_without_gradients = False
        self._units = units
        self._parameters = parameters
        self._source = source
        self._device = device
        self._memory: dict[str, "weakref.ref[Any]"] = {}  # of the current use
        self._versions: dict[str, int] = {}  # of what is kept
        self._resumed_s = 0.0  # when the current use began to compute
        self.is_entered = False

    def enter(self) -> None:
        self.is_entered = True

    def acquire(self, units: list[str], which: str) -> dict[str, Slot]:
        if not self.uses:
            self.begins_without_gradients = not torch.is_grad_enabled()
        self.uses.append(Use(list(units), which))
        slots = {unit: self._slot(unit, self._filled(unit)) for unit in units}
        self._resumed_s = self._now_s()
        return slots

    def extend(self, part: Part) -> dict[str, Slot]:
        self._count()
        new = [unit for unit in part.units if unit not in self._memory]
        self.uses[-1] = replace(self.uses[-1], units=[*self.uses[-1].units, *new])
        slots = {unit: self._slot(unit, self._filled(unit)) for unit in new}
        self._resumed_s = self._now_s()
        return slots

    def release(self, which: str) -> Optional[dict[str, Slot]]:
        self._count()
        left = {unit: memory() for unit, memory in self._memory.items()}
        if all(memory is None for memory in left.values()):
            self._memory.clear()
            return None
        if which == "forward":
            held = next(unit for unit, memory in left.items() if memory is not None)
            raise lib.ConfigError(
                f"offload: {held}: something keeps tensors over its weights after its forward "
                "(keep copies, or name a larger module in parts)"
            )
        return {
            unit: self._slot(unit, self._filled(unit) if memory is None else memory)
            for unit, memory in left.items()
        }

    def discard(self) -> None:
        self._memory.clear()

    def _count(self) -> None:
        """Adds the time since the current use began, or was counted, to its seconds."""
        now_s = self._now_s()
        seconds = self.uses[-1].seconds + now_s - self._resumed_s
        self.uses[-1] = replace(self.uses[-1], seconds=seconds)
        self._resumed_s = now_s

    def _now_s(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def keep(self, name: str) -> None:
        """Brings a parameter to memory until the end."""
        parameter = self._parameters[name]
        values = self._source.values(name)
        parameter.data = values.to(self._device, parameter.dtype, copy=True)
        self._versions.update(versions_of(self._parameters, [name]))

    def check_kept(self) -> None:
        """Throws where the example wrote what is kept."""
        now = versions_of(self._parameters, self._versions)
        refuse_written(name for name in now if now[name] != self._versions[name])

    def has_kept(self) -> bool:
        return True

    def is_in_step(self) -> bool:
        return True

    def has_gradients(self) -> bool:
        return False

    def _filled(self, unit: str) -> Any:
        size = sum(self._room(name) for name in self._units[unit])
        memory = new_bytes(size + _ALIGNMENT, self._device)
        for name, values in self._views(unit, self._aligned(memory)):
            values.copy_(self._source.values(name))
        return memory

    def _aligned(self, memory: Any) -> torch.Tensor:
        """Where a unit begins in its memory, which each of its uses has elsewhere."""
        values = tensor_over(memory, self._device)
        return values[-values.data_ptr() % _ALIGNMENT :]

    def _slot(self, unit: str, memory: Any) -> Slot:
        self._memory[unit] = weakref.ref(memory)
        values = self._aligned(memory)
        return Slot(values, dict(self._views(unit, values)), lambda _name, _gradient: None)

    def _room(self, name: str) -> int:
        parameter = self._parameters[name]
        size = parameter.numel() * parameter.element_size()
        return -(-size // _ALIGNMENT) * _ALIGNMENT

    def _views(self, unit: str, memory: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        begin = 0
        for name in self._units[unit]:
            parameter = self._parameters[name]
            size = parameter.numel() * parameter.element_size()
            values = memory[begin : begin + size].view(parameter.dtype)
            yield name, values.view(parameter.shape)
            begin += self._room(name)


class _Watch(TorchFunctionMode):
    """Finds parameters that are used where their module does not compute."""

    def __init__(self, binder: Binder, recorder: Recorder) -> None:
        super().__init__()
        self._binder = binder
        self._recorder = recorder
        self._gradients: Any = WeakTensorKeyDictionary()  # of tensors outside of the model

    def __torch_function__(
        self, function: Any, _types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords = keywords or {}
        given = tensors_in([arguments, keywords])
        for tensor in given:
            self._set_aside_gradient(tensor)
        away = [each for each in given if self._binder.is_away(each)]
        if not away or in_backward():
            return function(*arguments, **keywords)
        with torch.no_grad():  # a checkpointed region counts the tensors that are saved
            result = function(*arguments, **keywords)
        if not tensors_in(result):  # sizes and types are known
            return result
        for parameter in away:
            name = self._binder.name_of(parameter)
            if name not in self._binder.kept:
                if not self._recorder.is_entered:
                    raise lib.ConfigError(
                        f"offload: {name}: it is used before the model is called (use it within the "
                        "forward of the model or of one of its modules)"
                    )
                self._recorder.keep(name)
                self._binder.kept.add(name)
        return function(*arguments, **keywords)

    def _set_aside_gradient(self, tensor: torch.Tensor) -> None:
        """Of a tensor outside of the model, such as a parameter of a network around it."""
        is_outside = tensor.is_leaf and tensor.requires_grad and not self._binder.name_of(tensor)
        if is_outside and tensor not in self._gradients:
            self._gradients[tensor] = gradient_of(tensor)
            drop_gradient(tensor)

    def give_gradients_back(self) -> None:
        for tensor, gradient in self._gradients.items():
            set_gradient(tensor, gradient)


def record(
    model: nn.Module, binder: Binder, recorder: Recorder, example: Callable[[], torch.Tensor]
) -> None:
    """Computes example() forward and backward. Random numbers, buffers, and gradients outside of the
    model are as before, also after an exception."""
    recorder.uses.clear()
    gpus = {each.device.index for each in binder.parameters.values() if each.device.type == "cuda"}
    watch = _Watch(binder, recorder)
    with torch.random.fork_rng(devices=gpus), _unchanged(model):
        try:
            with _eager(), watch:
                loss_of(example).backward()  # type: ignore[no-untyped-call]
        finally:
            watch.give_gradients_back()
    binder.unbind()
    recorder.check_kept()
    for parameter in binder.parameters.values():
        drop_gradient(parameter)


def _eager() -> ContextManager[None]:
    """Blocks that are to be compiled are not: it would be with all that watches them."""
    stance: Any = getattr(torch.compiler, "set_stance", None)  # since 2.6
    eager: ContextManager[None] = nullcontext() if stance is None else stance("force_eager")
    return eager


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Afterwards buffers of the model, and of modules around it that this thread computes, and the
    generators of Python and NumPy are as before."""
    buffers: list[tuple[nn.Module, str, torch.Tensor]] = []
    values: dict[torch.Tensor, torch.Tensor] = {}  # of a buffer, which several modules may have
    seen: set[nn.Module] = set()
    thread = threading.get_ident()

    def keep(root: nn.Module, _inputs: Any = ()) -> None:
        if threading.get_ident() != thread:
            return
        for module in set(root.modules()) - seen:
            seen.add(module)
            for name, buffer in module.named_buffers(recurse=False):
                buffers.append((module, name, buffer))
                if buffer not in values:
                    values[buffer] = unrepeated(buffer).clone()

    keep(model)
    states = random.getstate(), np.random.get_state()
    hook = register_module_forward_pre_hook(keep)
    try:
        yield
    finally:
        hook.remove()
        random.setstate(states[0])
        np.random.set_state(states[1])
        with torch.no_grad():
            for module, name, buffer in buffers:
                unrepeated(buffer).copy_(values[buffer])
                setattr(module, name, buffer)


def loss_of(example: Callable[[], torch.Tensor]) -> torch.Tensor:
    if not callable(example):
        raise lib.ConfigError(
            f"offload: example: a {type(example).__name__} (give a function without arguments that "
            "computes the loss of a micro-batch, such as lambda: loss_of(model, batch))"
        )
    loss: Any = example()
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        what = type(loss).__name__
        if isinstance(loss, torch.Tensor):
            needs = "" if loss.requires_grad else " that needs no gradient"
            what = f"a tensor of shape {tuple(loss.shape)}{needs}"
        raise lib.ConfigError(
            f"offload: example: it returned no loss that has a gradient, but {what} (return a tensor of "
            "one element that the model computed, not within torch.no_grad())"
        )
    return loss


@contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """The model as in evaluation, where it leaves out nothing at random."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
