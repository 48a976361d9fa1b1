# SPDX-License-Identifier: Apache-2.0
"""Memory of a device, for libraries that compute there."""

from __future__ import annotations

import ctypes as c
from typing import Any, Optional, Sequence

# Kinds of devices in DLPack's numbers.
CUDA, OTHER = 2, 12

_LEGACY_STREAM = 1  # CUDA's default stream, whose handle is also 0
_ANY_STREAM = -1  # of a consumer that orders its streams by itself


class DeviceMemory:
    """An array in the memory of a GPU, for all that takes `__cuda_array_interface__` or DLPack, such
    as torch.as_tensor, torch.from_dlpack, cupy.asarray and jax.dlpack.from_dlpack. What these make
    shows this memory without a copy, and holds this object.

    kind: its type as NumPy writes it, such as "<f4". shape: its sizes, row-major without gaps.
    owner: what must live as long. device: as DLPack numbers it, (2, N) for cuda:N.
    stream: the one whose work finds the memory in order; None: whatever is issued finds it so.
    """

    def __init__(
        self,
        address: int,
        shape: Sequence[int],
        kind: str,
        owner: Any = None,
        *,
        device: tuple[int, int] = (CUDA, 0),
        stream: Optional[int] = None,
    ) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.kind = kind
        self.owner = owner
        self.device = device
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.kind,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """A capsule over the memory, for from_dlpack() of other libraries. Raises BufferError where
        they ask for another stream than the memory is ordered with, another device, or a copy."""
        if copy or (dl_device is not None and tuple(dl_device) != self.device):
            raise BufferError(
                f"DeviceMemory: DLPack: a copy, or device {dl_device}, is asked for, of memory of "
                f"device {self.device} (take it as it is, and copy it there)"
            )
        if not self._is_ordered_with(stream):
            raise BufferError(
                f"DeviceMemory: DLPack: it is asked for with stream {stream}, but its unit was acquired "
                f"with stream {self.stream} (acquire it with the stream that computes)"
            )
        return _capsule_of(self, max_version)

    def _is_ordered_with(self, stream: Optional[int]) -> bool:
        if self.stream is None or stream == _ANY_STREAM:
            return True
        return (stream or _LEGACY_STREAM) == (self.stream or _LEGACY_STREAM)


def device_of(option: Any) -> tuple[int, int]:
    """A store's option `device` as DLPack numbers it; a store's "cuda" is the first GPU."""
    name, _, index = str(option).partition(":")
    return (CUDA, int(index) if index.isdigit() else 0) if name == "cuda" else (OTHER, 0)


class _Described:
    """What NumPy makes an array of without a look at the memory. The array holds it."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.__array_interface__ = {
            "shape": memory.shape,
            "typestr": memory.kind,
            "data": (memory.address, False),
            "version": 3,
        }


class _Tensor(c.Structure):
    """The beginning of DLPack's DLTensor."""

    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32)]


# Where the tensor is in what a capsule of a name points to: DLManagedTensor, DLManagedTensorVersioned.
_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}

_name_of: Any = c.pythonapi.PyCapsule_GetName
_name_of.argtypes, _name_of.restype = [c.py_object], c.c_char_p
_pointer_of: Any = c.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = [c.py_object, c.c_char_p], c.c_void_p


def _capsule_of(memory: DeviceMemory, max_version: Optional[tuple[int, int]]) -> Any:
    """NumPy's capsule of an array at the same address, with the device instead of the CPU: NumPy has
    the destructors, which Python functions cannot be, because they run while exceptions are raised
    and when Python ends."""
    import numpy as np

    array: Any = np.asarray(_Described(memory))
    try:
        capsule = array.__dlpack__(max_version=max_version)
    except TypeError:  # NumPy before 2.1, which has no other than the first version
        capsule = array.__dlpack__()
    name = _name_of(capsule)
    tensor = _Tensor.from_address(_pointer_of(capsule, name) + _OFFSETS[name])
    tensor.device_type, tensor.device_id = memory.device
    return capsule
