# SPDX-License-Identifier: Apache-2.0
"""Arrays over a unit in memory."""

from __future__ import annotations

import ctypes as c
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Type, Union

from . import _library as lib
from ._device_memory import DeviceMemory
from ._values import real

if TYPE_CHECKING:
    import numpy as np

    from ._store import Store


class View:
    """A unit in memory, from acquire to release.

    `view[name]` is the tensor's weights, read-only, and `view.gradient(name)` its gradient, to which
    the caller adds; both are NumPy arrays over the store's own memory, with the tensor's shape.
    Weights are float32, or with the bf16 recipe uint16 with the bits of bfloat16 (`float32(name)`
    is a copy in float32). Other libraries show the same memory by DLPack, such as torch.from_dlpack;
    PyTorch lets weights be written then, which must not be, and NumPy before 2.1 refuses to give
    them. The unit cannot be released while an array over it exists, of whatever library: delete the
    arrays, or keep copies.

    Where the store has a device, both are DeviceMemory in place of NumPy arrays, and nothing but the
    device may touch them.
    """

    def __init__(
        self, store: "Store", unit: int, struct: lib.ViewStruct, stream: Optional[int] = None
    ) -> None:
        width = 4 if struct.dtype == lib.F32 else 2
        self._store = store
        self._unit = unit
        self._stream = stream
        self._type = "<f4" if width == 4 else "<u2"
        self.on_device = bool(struct.on_device)
        self._places = {"weights": (struct.weights, struct.count * width)}  # address, bytes
        if struct.gradient:
            self._places["gradient"] = (struct.gradient, struct.count * 4)
        self._buffers: dict[str, Union[c.Array[c.c_ubyte], DeviceMemory]] = {}
        self._show()

    def _show(self) -> None:
        self._buffers = {name: self._memory(*place) for name, place in self._places.items()}

    def _memory(self, address: int, size: int) -> "Union[c.Array[c.c_ubyte], DeviceMemory]":
        if self.on_device:
            return self._on_device(address, (size,), "|u1")
        return (c.c_ubyte * size).from_address(address)

    def _on_device(
        self, address: int, shape: tuple[int, ...], kind: str, owner: Any = None
    ) -> DeviceMemory:
        device = self._store._device
        return DeviceMemory(address, shape, kind, owner, device=device, stream=self._stream)

    def _array(self, name: str, buffer: str, kind: str) -> "Union[np.ndarray, DeviceMemory]":
        import numpy as np

        if not self._buffers:
            raise lib.UsageError(f"view: {name}: the unit was released (acquire it again)")
        if buffer not in self._buffers:
            raise lib.UsageError(
                f"view: {name}: it has no gradient now (acquire a trained unit for its backward)"
            )
        unit, _, shape, info = self._store._find(name)
        if buffer == "gradient" and info.frozen:
            raise lib.UsageError(f"view: {name}: it is frozen and has no gradient (train it)")
        if unit != self._unit:
            raise lib.UsageError(f"view: {name}: it is in another unit (acquire that one)")
        width = 2 if kind == "<u2" else 4
        memory = self._buffers[buffer]
        if isinstance(memory, DeviceMemory):
            return self._on_device(memory.address + info.offset * width, shape, kind, memory)
        everything = np.asarray(memory)  # holds the buffer, as do arrays from it
        part = everything[info.offset * width : (info.offset + info.count) * width]
        return part.view(kind).reshape(shape)

    def __getitem__(self, name: str) -> Any:
        array = self._array(name, "weights", self._type)
        if not isinstance(array, DeviceMemory):
            array.flags.writeable = False
        return array

    def float32(self, name: str) -> "np.ndarray":
        """A copy of the weights in host memory, float32."""
        import numpy as np

        bits = self._copy(self._array(name, "weights", self._type))
        if self._type == "<f4":
            return bits
        wide = bits.astype(np.uint32)
        wide <<= np.uint32(16)  # in place and of this type: NumPy 1 widens an array without dimensions
        return wide.view(np.float32)

    def gradient(self, name: str) -> Any:
        """The sum of this step's gradients so far, float32; add to it in place."""
        return self._array(name, "gradient", "<f4")

    def _copy(self, array: "Union[np.ndarray, DeviceMemory]") -> "np.ndarray":
        import numpy as np

        if not isinstance(array, DeviceMemory):
            return array.copy()
        values = np.empty(array.shape, array.kind)
        self._store._call("store_copy", values.ctypes.data, array.address, values.nbytes)
        return values

    def add_gradient(self, name: str, values: "np.ndarray", scale: float = 1.0) -> None:
        """Adds scale * values, an array of real numbers with the tensor's shape."""
        import numpy as np

        gradient = self.gradient(name)
        given = real(values, f"add_gradient: {name}")
        if given.shape != gradient.shape:
            raise lib.ConfigError(
                f"add_gradient: {name}: shape {given.shape} (give {gradient.shape})"
            )
        sums = self._copy(gradient) if isinstance(gradient, DeviceMemory) else gradient
        sums += given.astype(np.float32) * np.float32(scale)
        if isinstance(gradient, DeviceMemory):
            self._store._call("store_copy", gradient.address, sums.ctypes.data, sums.nbytes)

    def _free(self) -> bool:
        """Whether no array over the unit is left; the view then shows nothing any more."""
        references = {name: weakref.ref(buffer) for name, buffer in self._buffers.items()}
        self._buffers = {}
        held = {name: reference() for name, reference in references.items()}
        if all(buffer is None for buffer in held.values()):
            return True
        for name, buffer in held.items():
            self._buffers[name] = self._memory(*self._places[name]) if buffer is None else buffer
        return False

    def __enter__(self) -> "View":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        # The frames of an exception hold arrays: the step is discarded by whoever catches it.
        if error is None and self._store._view is self:
            self._store.release()
