# SPDX-License-Identifier: Apache-2.0
"""Where a model computes: the CPU or a GPU, with memory of the store that tensors show."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Union

import numpy as np
import torch
from torch import nn

from .. import _library as lib
from .._store import Store
from .._device_memory import CUDA, DeviceMemory
from .._view import View

Given = Optional[Union[str, torch.device]]


def device_of(model: nn.Module, given: Given) -> torch.device:
    """The device that is given, or that of the weights; the CPU for weights on the meta device."""
    device = torch.device(given) if given is not None else next(model.parameters()).device
    if device.type in ("cpu", "meta"):
        return torch.device("cpu")
    if device.type != "cuda":
        raise lib.ConfigError(f"offload: device {device} (give cpu, cuda or cuda:N)")
    if not torch.cuda.is_available():
        raise lib.ConfigError(f"offload: device {device}: PyTorch has no GPU here (give cpu)")
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)


def options_of(device: torch.device) -> dict[str, Any]:
    """What the store must know of it."""
    return {"device": str(device)} if device.type == "cuda" else {}


def tensor_over(memory: Any, device: torch.device) -> torch.Tensor:
    """A tensor over memory of the store or of new_bytes(), which it holds."""
    if isinstance(memory, DeviceMemory):
        tensor = torch.as_tensor(memory, device=device)
        if tensor.numel() > 0 and tensor.data_ptr() != memory.address:
            raise lib.InternalError(
                f"device: {device}: PyTorch copied the store's memory to {tensor.device}"
            )
        return tensor
    if isinstance(memory, np.ndarray):
        return torch.from_numpy(memory)
    return torch.frombuffer(memory, dtype=torch.uint8)


def new_bytes(size: int, device: torch.device) -> "Union[np.ndarray, DeviceMemory]":
    """So many bytes, whose object lives as long as a tensor over them."""
    if device.type == "cpu":
        return np.empty(size, np.uint8)
    owner = torch.empty(size, dtype=torch.uint8, device=device)
    return DeviceMemory(
        owner.data_ptr(), (size,), "|u1", owner, device=(CUDA, owner.device.index)
    )


class Streams:
    """Orders a store with the streams of PyTorch on its device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._used: Any = None

    def acquire(self, store: Store, unit: str, which: str) -> View:
        if self._device.type == "cpu":
            return store.acquire(unit, which)
        self._used = torch.cuda.current_stream(self._device)
        return store.acquire(unit, which, stream=self._used.cuda_stream)

    def release(self, store: Store) -> None:
        if self._used is not None:
            now: Any = torch.cuda.current_stream(self._device)
            if now != self._used:  # a backward on another stream
                self._used.wait_stream(now)
        store.release()


class Buffers:
    """A model's buffers, moved to the device; restore() gives it those that it had. values: of some, by
    the buffer's id()."""

    def __init__(
        self, model: nn.Module, device: torch.device, values: Mapping[int, torch.Tensor]
    ) -> None:
        self._before: list[tuple[nn.Module, str, torch.Tensor]] = []
        moved: dict[int, torch.Tensor] = {}  # by the buffer's id(): several modules may share one
        for module in model.modules():
            for name, buffer in list(module.named_buffers(recurse=False)):
                if buffer.device != device or id(buffer) in values:
                    self._before.append((module, name, buffer))
                    if id(buffer) not in moved:
                        moved[id(buffer)] = values.get(id(buffer), buffer).to(device)
                    setattr(module, name, moved[id(buffer)])

    def restore(self) -> None:
        for module, name, buffer in self._before:
            setattr(module, name, buffer)
