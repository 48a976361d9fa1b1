# SPDX-License-Identifier: Apache-2.0
"""What users of PyTorch do with a model and its parameters: it works over the store, or says what to
call."""

from __future__ import annotations

import sys
from typing import Any, Callable, NoReturn, Optional, Protocol

import torch
from torch import nn

from .. import _library as lib
from ._guard import Guarded


def _refuse(what: str, way_out: str) -> NoReturn:
    raise lib.UsageError(f"offload: {what} ({way_out})")


def refuse_other_training(what: str) -> NoReturn:
    _refuse(
        f"{what}: the store has state for the parameters that were trained when the model was "
        "offloaded",
        "call restore(), change it, and offload the model again; what state_dict() of the optimizer "
        "gave before gives the next one its moments, where parameters are frozen",
    )


class StoredParameter(Guarded, nn.Parameter):
    """A parameter whose value, gradient and moments lie in a store."""

    def _is_trained(self) -> bool:
        trained: bool = _REQUIRES_GRAD.__get__(self)
        return trained

    @property
    def grad(self) -> None:
        asks = sys._getframe(1).f_code
        if asks is nn.Module._apply.__code__:  # to() of a module around the model, which has asked for the weight
            return None
        if asks is nn.Module.zero_grad.__code__:  # of a module around the model, or within it
            if not getattr(self, "home").uses.has_gradients():
                return None
            _refuse(
                "zero_grad() of a part of the model, or of a module around it, within a step",
                "call zero_grad() of the optimizer or of the model itself, which drops the whole step",
            )
        if asks is torch.amp.GradScaler._unscale_grads_.__code__:
            _refuse(
                "GradScaler reads param.grad: gradients go to the store as they are made",
                "leave it out, or make it with enabled=False: only float16 needs it, and gradients are "
                "float32 or bfloat16",
            )
        _refuse(
            "param.grad: gradients go to the store as they are made",
            "clip with optimizer.clip_grad_norm_(max_norm), and read optimizer.result.grad_norm "
            "after step(); zero_grad() drops them; param.register_hook(f) shows f each as it is made; "
            "for a Trainer or Accelerator call optimizer.attach(trainer) before train() or prepare()",
        )

    @grad.setter
    def grad(self, value: Optional[torch.Tensor]) -> None:
        if value is not None or getattr(self, "home").uses.has_gradients():
            _refuse(
                "param.grad is set: gradients go to the store as they are made",
                "call optimizer.zero_grad(), which drops those of the step",
            )

    @property
    def requires_grad(self) -> bool:
        return self._is_trained()

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> "StoredParameter":
        """Between steps it is as it was when the model was offloaded; PEFT, say, takes it away for a
        pass without adapters, and sets it again."""
        if requires_grad == self._is_trained():
            return self
        if requires_grad and not getattr(self, "_is_off", False):
            refuse_other_training("requires_grad")
        self._is_off = not requires_grad
        _REQUIRES_GRAD.__set__(self, requires_grad)
        return self

    def __deepcopy__(self, _memo: Any) -> NoReturn:
        _refuse(
            f"{_name_of(self)}: a copy of it or of the model would have no weights",
            "copy model.state_dict()",
        )

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        _refuse(
            f"{_name_of(self)}: torch.save() of it or of the model would have no weights",
            "save model.state_dict()",
        )


def _name_of(parameter: Any) -> str:
    try:
        name: str = parameter.home.name_of(parameter)
        return name
    except ReferenceError:
        return "a parameter whose model is gone"


def check_model(model: nn.Module) -> None:
    """Throws where it has nothing to move to a store, or is over one already."""
    if not isinstance(model, nn.Module):
        raise lib.ConfigError(f"offload: model: a {type(model).__name__} (give a torch.nn.Module)")
    if next(model.parameters(), None) is None:
        raise lib.ConfigError("offload: the model has no parameters (give one that has)")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, StoredParameter):
            raise lib.UsageError(
                f"offload: {name}: it is in a store already (call restore() of what offload() "
                "returned before)"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise lib.ConfigError(
            "offload: no parameter of the model is trained (set requires_grad of those that train; a model "
            "that does not train needs no store)"
        )


def check_memory(model: nn.Module) -> None:
    """Throws where a trained parameter shows memory of another parameter or of a buffer, from which the
    store would part it in silence."""
    spans = []
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.numel() == 0:
            continue
        sizes = zip(tensor.shape, tensor.stride())
        count = 1 + sum((size - 1) * step for size, step in sizes)
        end = tensor.data_ptr() + count * tensor.element_size()
        is_trained = isinstance(tensor, nn.Parameter) and tensor.requires_grad
        spans.append((tensor.data_ptr(), end, count <= tensor.numel(), is_trained, name))
    spans.sort()
    for (_, end, is_whole, is_trained, name), (begin, _, too, also, other) in zip(spans, spans[1:]):
        if begin < end and (is_whole or too) and (is_trained or also):
            _refuse(
                f"{name}: it shares memory with {other}, which is another tensor, and the store would "
                "not let them change together",
                "make them one parameter, as decoder.weight = encoder.weight does, and transpose it where "
                "it is used; or give one a clone()",
            )


_MOVES = ("to", "cpu", "cuda", "half", "float", "double", "bfloat16")
_REQUIRES_GRAD: Any = torch.Tensor.requires_grad


class State(Protocol):
    """What a model's methods need of its store."""

    def zero_grad(self) -> None: ...

    def weights_of(self, parameters: dict[str, nn.Parameter]) -> dict[str, torch.Tensor]:
        """Copies of those that are in the store, by the given names."""

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Replaces weights by the names of the model."""

    def name_of(self, parameter: nn.Parameter) -> str:
        """Of a parameter in the store, or nothing."""

    def require_idle(self, call: str) -> None:
        """Ends a pass that was cut short. Throws within a step."""


class Habits:
    """Methods and hooks of a model over a store. remove() takes them away."""

    def __init__(self, model: nn.Module, state: State) -> None:
        self._model = model
        self._state = state
        self._taken: set[str] = set()
        self._hooks: list[Any] = []
        for name in _MOVES:
            setattr(model, name, self._stays(getattr(model, name), name))
        setattr(model, "zero_grad", lambda set_to_none=True: state.zero_grad())

        def write(*given: Any) -> None:  # PyTorch marks the function
            self._write(*given)

        def settle(module: nn.Module, prefix: str, _keep_vars: bool) -> None:
            if self._is_outermost(module, prefix):
                state.require_idle("state_dict")  # before it has tensors over what is in memory

        each: Any
        for each in model.modules():
            self._hooks += [
                each.register_state_dict_pre_hook(settle),
                each.register_state_dict_post_hook(write),
                each.register_load_state_dict_pre_hook(self._read),
                each.register_load_state_dict_post_hook(self._report),
            ]

    def remove(self) -> None:
        for name in (*_MOVES, "zero_grad"):
            delattr(self._model, name)
        for hook in self._hooks:
            hook.remove()

    def _stays(self, method: Callable[..., nn.Module], name: str) -> Callable[..., nn.Module]:
        """A method that changes nothing where device and type are those that the model has."""

        def changed(*arguments: Any, **keywords: Any) -> nn.Module:
            first = next(self._model.parameters())
            here = torch.empty(0, dtype=first.dtype, device=first.device)
            try:
                moved = getattr(here, name)(*arguments, **keywords)
                if moved.dtype == here.dtype and moved.device == here.device:
                    return self._model
            except (RuntimeError, AssertionError):  # there is no such device
                pass
            _refuse(
                f"model.{name}(): the weights lie in a store, as {here.dtype} for {here.device}",
                "change the model before it is offloaded",
            )

        return changed

    def _is_outermost(self, module: nn.Module, prefix: str) -> bool:
        return prefix == "" or module is self._model

    def _write(self, module: nn.Module, state: Any, prefix: str, _metadata: Any) -> None:
        if not self._is_outermost(module, prefix):
            return
        wanted = {
            prefix + name: parameter
            for name, parameter in module.named_parameters(remove_duplicate=False)
            if prefix + name in state
        }
        state.update(self._state.weights_of(wanted))

    def _read(
        self, module: nn.Module, state: Any, prefix: str, _metadata: Any, _strict: bool,
        _missing: Any, _unexpected: Any, errors: list[str],
    ) -> None:  # fmt: skip
        if not self._is_outermost(module, prefix):
            return
        found: dict[str, torch.Tensor] = {}
        for key, parameter in module.named_parameters(remove_duplicate=False):
            name = self._state.name_of(parameter)
            if not name or prefix + key not in state:
                continue
            given = state.pop(prefix + key)
            self._taken.add(prefix + key)
            if not isinstance(given, torch.Tensor):
                errors.append(f"{prefix + key}: a {type(given).__name__} (give a tensor)")
            elif given.shape == parameter.shape:
                found[name] = given
            else:
                errors.append(
                    f"{prefix + key}: shape {tuple(given.shape)} (give {tuple(parameter.shape)})"
                )
        if found and not errors:
            self._state.load_weights(found)

    def _report(self, module: nn.Module, incompatible: Any) -> None:
        missing = [key for key in incompatible.missing_keys if key not in self._taken]
        incompatible.missing_keys[:] = missing
        if module is self._model:
            self._taken.clear()
