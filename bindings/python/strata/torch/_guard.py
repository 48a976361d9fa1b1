# SPDX-License-Identifier: Apache-2.0
"""Reads of weights that are not in memory are errors that name the weight, the function, and what to
do. PyTorch asks __torch_function__ of a class before each function that is given one of its tensors.
The few that ask no class (docs/embedding.md lists them) find NaN in a parameter: on the meta device they
would raise, but a parameter cannot go there and back, and tensors of the CPU without memory crash them.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any, Iterator, NoReturn, Optional, Protocol

import torch
from torch import nn
from torch.overrides import resolve_name

from .. import _library as lib


class Home(Protocol):
    """Knows which weights are in memory."""

    def is_away(self, parameter: torch.Tensor) -> bool: ...

    def name_of(self, parameter: torch.Tensor) -> str: ...

    def is_kept(self, parameter: torch.Tensor) -> bool:
        """Whether it is in memory for whole micro-batches."""

    def is_in_step(self) -> bool:
        """Whether a forward with gradients has begun since the last step."""


# Functions that give no tensor, and read or write values or show their memory.
_READS = {
    "__array__", "__bool__", "__complex__", "__contains__", "__dlpack__", "__float__", "__index__",
    "__int__", "__reduce_ex__", "__setitem__", "allclose", "data_ptr", "equal", "is_nonzero", "item",
    "numpy", "storage", "tolist", "untyped_storage",
}  # fmt: skip
# Functions that give tensors and read no values; those of autograd bring weights to memory.
_READS_NOT = {
    "backward", "empty_like", "full_like", "grad", "new_empty", "new_full", "new_ones", "new_tensor",
    "new_zeros", "ones_like", "rand_like", "randn_like", "requires_grad_", "zeros_like",
}  # fmt: skip


def unguarded() -> Any:
    """A context in which parameters are plain ones."""
    return torch._C.DisableTorchFunctionSubclass()  # public: notes on extending PyTorch


def writable() -> Any:
    """A context in which values of parameters may be set. It is empty outside of inference mode: an
    interrupt within PyTorch's would leave gradients off."""
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()


class Guarded(torch.Tensor):
    """Tensors that ask their `home` before a function reads them."""

    home: Optional[Home] = None

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords = keywords or {}
        with unguarded():
            for away in _away([*arguments, *keywords.values()]):
                return _call(away, function, arguments, keywords)
            return function(*arguments, **keywords)

    def as_subclass(self, kind: Any) -> Any:
        """PyTorch's asks no class."""
        for away in _away([self]):
            _refuse(away, torch.Tensor.as_subclass)
        return super().as_subclass(kind)

    def detach(self) -> Any:
        """nn.Parameter() wants a tensor of the same class."""
        for away in _away([self]) if sys._getframe(1).f_code is nn.Parameter.__new__.__code__ else ():
            _refuse(away, nn.Parameter)
        return super().detach()

    def set_(self, *given: Any, **keywords: Any) -> Any:
        """As that."""
        for away in _away([self]):
            _refuse(away, torch.Tensor.set_)
        return super().set_(*given, **keywords)


class Absent(Guarded):
    """What detach() and .data of a weight that is not in memory give. It is on the meta device, so that
    functions that ask no class, as x.data = absent and x.set_(absent) do, have no values to read."""

    of: torch.Tensor
    shown: torch.Tensor  # one that is where the weight is


def _away(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, Absent):
            yield value.of
        elif isinstance(value, Guarded):
            if value.home is not None and _is_away(value.home, value):
                yield value
        elif isinstance(value, (list, tuple)):
            yield from _away(value)


def require_values(tensor: torch.Tensor, function: Any) -> None:
    """Throws where a function, which is named, is given a weight that is not in memory."""
    for away in _away([tensor]):
        _refuse(away, function)


def _is_away(home: Home, parameter: torch.Tensor) -> bool:
    try:
        return home.is_away(parameter)
    except ReferenceError:
        raise lib.UsageError(
            "offload: a parameter whose model and store are gone (keep the model, or call restore() "
            "before)"
        ) from None


def _call(away: Any, function: Any, arguments: Any, keywords: Any) -> Any:
    name = getattr(function, "__name__", "")
    if name in ("__repr__", "__format__"):
        return f"<{away.home.name_of(away)} {tuple(away.shape)} {away.dtype}, not in memory>"
    if name == "__set__":
        sets_data = getattr(function, "__self__", None) is torch.Tensor.data
        if arguments[0] is not away or (sets_data and arguments[1] is not away):
            _refuse(away, function)
        return function(*arguments, **keywords)
    if name in _READS or _is_in_place(name):
        _refuse(away, function)
    if name == "new_tensor" and any(True for _ in _away([*arguments[1:], *keywords.values()])):
        _refuse(away, function)
    given = [each.shown if isinstance(each, Absent) else each for each in arguments]
    try:
        result = function(*given, **keywords)
    except RuntimeError:  # of values that are not there
        if name not in _READS_NOT:
            _refuse(away, function)
        raise
    if given and result is given[0] and isinstance(arguments[0], Guarded):
        return arguments[0]
    if name in ("detach", "__get__") and isinstance(result, torch.Tensor):
        return _absent(away, result)
    if name not in _READS_NOT and _has_tensors(result):
        _refuse(away, function)
    return result


def _absent(away: Any, shown: torch.Tensor) -> Absent:
    absent = torch.empty_like(shown, device="meta").as_subclass(Absent)
    absent.home, absent.of, absent.shown = away.home, away, shown
    return absent


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__") and name not in _READS_NOT


def _has_tensors(result: Any) -> bool:
    if isinstance(result, (list, tuple)):
        return any(_has_tensors(each) for each in result)
    return isinstance(result, torch.Tensor)


def _refuse(away: Any, function: Any) -> NoReturn:
    called = resolve_name(function) or getattr(function, "__name__", str(function))
    name = away.home.name_of(away)
    if away.home.is_kept(away):
        raise lib.UsageError(
            f"offload: {name}: {called} uses it before the model is called in this micro-batch (call "
            "the model first; between steps read weights with model.state_dict(), and replace them "
            "with model.load_state_dict())"
        )
    keep = f'give offload() keep=["{name}"] or an example that does it'
    between = (
        "read weights with model.state_dict(), and replace them with model.load_state_dict(); to "
        "change or export the model, as half(), merges of adapters and torch.export do, call "
        "restore() before and offload it again after; a trainer that copies weights, as TRL's DPOTrainer "
        "copies an adapter, is made before offload()"
    )
    if away.home.is_in_step():
        raise lib.UsageError(
            f"offload: {name}: {called} uses it where its module does not compute, and the example does "
            f"not ({keep}; between steps {between})"
        )
    is_loss = not _is_in_place(getattr(function, "__name__", ""))
    raise lib.UsageError(
        f"offload: {name}: {called} uses it between steps, when it lies in the store ({between}"
        + (f"; for a loss that uses it, {keep})" if is_loss else ")")
    )
