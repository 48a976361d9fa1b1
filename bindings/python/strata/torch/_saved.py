# SPDX-License-Identifier: Apache-2.0
"""What autograd saves of weights from forward to backward: references to units, not memory."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Protocol

import torch


class Slot:
    """A unit in memory: its bytes, its weights by name, and what takes a gradient."""

    def __init__(
        self,
        memory: torch.Tensor,
        weights: Mapping[str, torch.Tensor],
        add: Callable[[str, torch.Tensor], None],
    ) -> None:
        self.memory = memory
        self.begin = memory.data_ptr()
        self.weights = weights
        self.add = add


Slots = Mapping[str, Slot]  # by unit
_CAST = (torch.bfloat16, torch.float16)


class Reference:
    """A tensor that autograd saved of weights: where it lies in its unit, or in the copy of `name`
    that autocast makes."""

    def __init__(self, unit: str, tensor: torch.Tensor, name: Optional[str], first: int) -> None:
        self.unit = unit
        self._dtype = tensor.dtype
        self._shape = tensor.shape
        self._stride = tensor.stride()
        self._name = name
        self._first = first  # element

    def of(self, slot: Slot) -> torch.Tensor:
        if self._name is None:
            typed = slot.memory.view(self._dtype)
        else:
            typed = slot.weights[self._name].to(self._dtype)
        first = int(typed.storage_offset()) + self._first
        return typed.as_strided(self._shape, self._stride, first)


def unit_of(tensor: torch.Tensor, slots: Slots) -> Optional[str]:
    """The unit whose memory a tensor shows."""
    if tensor.layout != torch.strided:
        return None
    address = tensor.data_ptr()
    for unit, slot in slots.items():
        if 0 <= address - slot.begin < slot.memory.numel():
            return unit
    return None


def reference_to(tensor: torch.Tensor, slots: Slots) -> Optional[Reference]:
    """Of a tensor over weights, or over a copy of them that autocast has made."""
    unit = unit_of(tensor, slots)
    if unit is not None:
        first = (tensor.data_ptr() - slots[unit].begin) // tensor.itemsize
        return Reference(unit, tensor, None, first)
    return _reference_to_cast(tensor, slots) if tensor.dtype in _CAST else None


def _reference_to_cast(tensor: torch.Tensor, slots: Slots) -> Optional[Reference]:
    """Autocast does not say which copies it makes: a tensor of their type whose memory has the bits of
    one is one, or may be replaced by one."""
    if tensor.layout != torch.strided:
        return None
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    for unit, slot in slots.items():
        for name, weights in slot.weights.items():
            if weights.numel() != count or weights.dtype == tensor.dtype:
                continue
            whole = tensor.as_strided(weights.shape, weights.stride(), 0)
            if torch.equal(whole, weights.to(tensor.dtype)):
                return Reference(unit, tensor, name, int(tensor.storage_offset()))
    return None


class Referring(Protocol):
    """Knows what is in memory, and brings it there."""

    def reference_to(self, tensor: torch.Tensor) -> Optional[Reference]: ...

    def weights_at(self, saved: Reference) -> torch.Tensor: ...


class Packing:
    """What autograd saves within a part: references to weights, and all else as it was before."""

    def __init__(self, binder: Referring, outer: Any) -> None:
        self.binder = binder
        self._outer = outer
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        self._hooks.__enter__()

    def end(self) -> None:
        self._hooks.__exit__()

    def pack(self, tensor: torch.Tensor) -> Any:
        reference = self.binder.reference_to(tensor)
        if reference is not None:
            return reference
        return self._outer[0](tensor) if self._outer else tensor

    def unpack(self, saved: Any) -> torch.Tensor:
        if isinstance(saved, Reference):
            return self.binder.weights_at(saved)
        tensor: torch.Tensor = self._outer[1](saved) if self._outer else saved
        return tensor
