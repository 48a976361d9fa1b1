# SPDX-License-Identifier: Apache-2.0
"""PyTorch models whose weights, gradients and optimizer state lie in a store.

    state = strata.torch.offload(model, lambda: loss_of(model, batch), {"host_memory": "2GiB", "nvme": "/mnt/a"})
    for batch in batches:
        loss = loss_of(model, batch)
        loss.backward()
        state.step(lr=1e-4)

The model computes as before. Only public hooks of PyTorch are used: a module's weights are in memory
while it computes forward or backward, and its gradients go to the store as they are made.

Not yet: GPUs, bf16 weights, activation checkpointing, modules with some parameters frozen, and models
that do not fit memory before they are moved.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Union

import torch
from torch import nn

from . import _library as lib
from ._plan import Options, Plan
from ._store import StepResult, Store, Unit, Use
from ._view import View

_Slot = tuple[int, int, torch.Tensor]  # unit, address, and its bytes


class _Part:
    """A module whose parameters are in memory together, with the units that have them."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self.module = module
        self.units: list[str] = []  # its own first


class _Reference:
    """A tensor that autograd saved of weights: where it lies in its unit."""

    def __init__(self, unit: int, tensor: torch.Tensor, offset: int) -> None:
        self.unit = unit
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self.stride = tensor.stride()
        self.offset = offset  # bytes


def parts_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules that are brought to memory one by one: the members of the list with the most
    parameters among lists of alike modules, and every other module with parameters of its own."""
    best: list[tuple[str, nn.Module]] = []
    most = 0
    for name, module in model.named_modules():
        children = list(module.named_children())
        alike = len(children) > 1 and len({type(child) for _, child in children}) == 1
        size = sum(p.numel() for p in module.parameters())
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and alike and size > most:
            most = size
            best = [(f"{name}.{key}" if name else key, child) for key, child in children]
    inside = {id(each) for _, part in best for each in part.modules()}
    rest = [
        (name, module)
        for name, module in model.named_modules()
        if id(module) not in inside and any(True for _ in module.parameters(recurse=False))
    ]
    return best + rest


class Offloaded:
    """A model over its store. See offload()."""

    def __init__(
        self,
        model: nn.Module,
        example: Callable[[], torch.Tensor],
        options: Optional[Options],
        parts: Optional[list[tuple[str, nn.Module]]],
    ) -> None:
        self._names: dict[int, str] = {}  # by id of a parameter
        self._parameters: dict[str, nn.Parameter] = {}
        self._trained: set[str] = set()
        self._slots: list[_Slot] = []
        self._views: dict[str, View] = {}  # by unit, of the acquired use
        self._order: Optional[list[Use]] = []  # recorded until there is a store
        self._is_backward_recorded = self._in_step = self._forward_only = False
        self._bound: Optional[_Part] = None
        self._saving: list[Any] = []
        self._parts = [_Part(name, module) for name, module in parts or parts_of(model)]
        units = self._declare(model)
        self._hooks = [hook for part in self._parts for hook in self._hook(part)]
        self._record(example)
        self.store = Store(units, options, order=self._order)
        self._order = None
        self.plan: Plan = self.store.plan()
        self.store.load({name: p.detach().numpy() for name, p in self._parameters.items()})
        for name, parameter in self._parameters.items():
            parameter.grad = None
            self._take_away(parameter)
            if name in self._trained:
                parameter.register_post_accumulate_grad_hook(self._take_gradient)  # type: ignore[no-untyped-call]

    def _declare(self, model: nn.Module) -> list[Unit]:
        """Units of the parts' own parameters; a shared parameter belongs to the first part."""
        owners: dict[int, str] = {}
        units = []
        for part in self._parts:
            shapes: dict[str, tuple[int, ...]] = {}
            trained = set()
            for name, parameter in part.module.named_parameters(prefix=part.name):
                if id(parameter) in owners:
                    continue
                if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                    raise lib.ConfigError(
                        f"offload: {name}: {parameter.dtype} on {parameter.device} (give float32 "
                        "on the CPU)"
                    )
                owners[id(parameter)] = part.name
                self._names[id(parameter)] = name
                self._parameters[name] = parameter
                shapes[name] = tuple(parameter.shape) or (1,)
                trained.add(parameter.requires_grad)
                if parameter.requires_grad:
                    self._trained.add(name)
            if len(trained) > 1:
                raise lib.ConfigError(
                    f"offload: {part.name}: some of its parameters are frozen (freeze all or none "
                    "of a module)"
                )
            if shapes:
                units.append(Unit(part.name, shapes, frozen=trained == {False}))
            used = [owners[id(p)] for p in part.module.parameters()]
            part.units = sorted(set(used), key=lambda unit: (unit != part.name, unit))
        missing = [n for n, p in model.named_parameters() if id(p) not in owners]
        if missing:
            raise lib.ConfigError(f"offload: {missing[0]}: it is in none of the parts (name all)")
        return units

    def _hook(self, part: _Part) -> list[Any]:
        def before(_module: nn.Module, _inputs: Any) -> None:
            if self._is_backward_recorded:
                raise lib.ConfigError(
                    f"offload: {part.name}: it computes forward again in the backward (switch "
                    "activation checkpointing off: it is not supported yet)"
                )
            self._end_use()  # of the micro-batch before this one
            self._begin_use(part, "forward")
            if self._order is not None:
                return
            saving = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
            saving.__enter__()
            self._saving.append(saving)

        def after(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if self._saving:
                self._saving.pop().__exit__(None, None, None)
            self._end_use()
            if output is not None:  # none where the forward raised
                self._bind_before_backward(part, output)

        return [
            part.module.register_forward_pre_hook(before),
            part.module.register_forward_hook(after, always_call=True),
        ]

    def _bind_before_backward(self, part: _Part, output: Any) -> None:
        """Whichever output's gradient is known first begins the backward of the part."""
        tensors = [t for t in _tensors_in(output) if t.requires_grad]
        begun = False

        def bind(_gradient: torch.Tensor) -> None:
            nonlocal begun
            if not begun:
                begun = True
                self._end_use()
                self._begin_use(part, "backward")

        for tensor in tensors:
            tensor.register_hook(bind)  # type: ignore[no-untyped-call]

    def _record(self, example: Callable[[], torch.Tensor]) -> None:
        """Runs a forward and backward with the model's own weights, for the order of uses."""
        loss = example()
        self._is_backward_recorded = True
        loss.backward()  # type: ignore[no-untyped-call]
        self._is_backward_recorded = False
        for parameter in self._parameters.values():
            parameter.grad = None

    def _begin_use(self, part: _Part, which: str) -> None:
        if self._order is not None:
            self._order.append(Use(part.units, which))
            return
        if not self._in_step and not self._forward_only:
            self.store.begin()
            self._in_step = True
        self._views[part.units[0]] = self.store.acquire(part.units[0], which)
        for unit in part.units[1:]:
            self._views[unit] = self.store.used(unit)
        for unit, view in self._views.items():
            memory = torch.frombuffer(view._buffers["weights"], dtype=torch.uint8)
            self._slots.append((self.store._number(unit, ""), memory.data_ptr(), memory))
        for parameter in part.module.parameters():
            owner, _, _, info = self.store._find(self._names[id(parameter)])
            memory = next(slot[2] for slot in self._slots if slot[0] == owner)
            floats = memory.view(torch.float32)[info.offset : info.offset + info.count]
            parameter.data = floats.view(parameter.shape)
        self._bound = part

    def _end_use(self) -> None:
        if self._bound is None:
            return
        for parameter in self._bound.module.parameters():
            self._take_away(parameter)
        self._bound = None
        self._views.clear()
        self._slots.clear()
        self.store.release()

    @staticmethod
    def _take_away(parameter: nn.Parameter) -> None:
        """Reads of a parameter that is not in memory give NaN."""
        parameter.data = torch.full((), float("nan")).expand(parameter.shape)

    def _take_gradient(self, parameter: torch.Tensor) -> None:
        name = self._names[id(parameter)]
        unit = self.store._units[self.store._find(name)[0]].name
        gradient = parameter.grad
        parameter.grad = None
        if unit not in self._views or gradient is None:
            raise lib.UsageError(f"offload: {name}: a gradient outside of its module's backward")
        torch.from_numpy(self._views[unit].gradient(name)).add_(gradient)

    def _pack(self, tensor: torch.Tensor) -> Union[torch.Tensor, _Reference]:
        for unit, begin, memory in self._slots:
            offset = tensor.data_ptr() - begin
            if 0 <= offset < memory.numel():
                return _Reference(unit, tensor, offset)
        return tensor

    def _unpack(self, saved: Union[torch.Tensor, _Reference]) -> torch.Tensor:
        if isinstance(saved, torch.Tensor):
            return saved
        for unit, _, memory in self._slots:
            if unit == saved.unit:
                typed = memory.view(saved.dtype)
                return typed.as_strided(saved.shape, saved.stride, saved.offset // typed.itemsize)
        raise lib.UsageError(
            f"offload: {self.store._units[saved.unit].name}: its weights are wanted outside of its "
            "module's backward (give the parts as they are called)"
        )

    def step(
        self, lr: float, *, clip: Optional[float] = None, weight_decay: Optional[float] = None
    ) -> StepResult:
        """Ends the step, after the backward of each of its micro-batches, with an AdamW update."""
        self._end_use()
        self._in_step = False
        return self.store.step(lr, clip=clip, weight_decay=weight_decay)

    def discard(self) -> None:
        """Ends the step at any point without an update, as after an exception."""
        self._end_use()
        if self._in_step:
            self.store.discard()
        self._in_step = False

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """One forward without a backward, between steps. The uses must be those of the order."""
        self.store.begin_forward()
        self._forward_only = True
        try:
            with torch.no_grad():
                yield
            self.store.end_forward()
        finally:
            self._forward_only = False

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of all trained weights by name."""
        return {
            name: torch.from_numpy(values).view(self._parameters[name].shape)
            for name, values in self.store.state().items()
        }

    def restore(self) -> None:
        """Gives the model its weights back, removes the hooks and closes the store. Frozen weights
        are not in the store's state, so there must be none."""
        frozen = set(self._parameters) - self._trained
        if frozen:
            raise lib.UsageError(f"restore: {sorted(frozen)[0]} is frozen (load it from its file)")
        for name, values in self.state_dict().items():
            self._parameters[name].data = values
        for hook in self._hooks:
            hook.remove()
        self.store.close()


def _tensors_in(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return [tensor for each in output for tensor in _tensors_in(each)]
    return []


def offload(
    model: nn.Module,
    example: Callable[[], torch.Tensor],
    options: Optional[Options] = None,
    *,
    parts: Optional[list[tuple[str, nn.Module]]] = None,
) -> Offloaded:
    """Moves the model's weights to a store, with moments of AdamW that are zero.

    example: computes a loss of one micro-batch. It runs once, forward and backward, before the move,
        and shows the order in which modules are used; every later micro-batch must have that order.
    options: those of Store; "accumulate" is the number of micro-batches of a step.
    parts: modules by name that are brought to memory one by one, instead of parts_of(model).

    Afterwards reads of parameters give NaN except where their module computes, and the optimizer is
    the store's: call step() of the result, not an optimizer's. Raises DoesNotFit with what would fit.
    """
    return Offloaded(model, example, options, parts)
