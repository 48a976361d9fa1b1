# SPDX-License-Identifier: Apache-2.0
"""libstrata.so by ctypes: structs, functions and callbacks as in strata.h, and errors by code."""

from __future__ import annotations

import ctypes as c
import os
from pathlib import Path
from typing import Any, Callable, Optional, Type

F32, BF16, F16 = 1, 2, 3
DTYPES = {"float32": F32, "bfloat16": BF16, "float16": F16}
FORWARD, BACKWARD = 0, 1
PLANES = {"weights": 0, "exp_avg": 1, "exp_avg_sq": 2}


class Error(Exception):
    """A failure of the library. `code` is its status; the text says what to do."""

    code = 15


class UsageError(Error, ValueError):
    """A call out of turn, or an unknown option."""

    code = 1


class ConfigError(Error, ValueError):
    """A value, file or directory that cannot be used."""

    code = 2


class DoesNotFit(Error, MemoryError):
    """A budget is too small; the text names the least that fits."""

    code = 3


class DriveError(Error, OSError):
    """A file or drive failed."""

    code = 4


class CorruptError(DriveError):
    """Bytes are not what was written."""

    code = 5


class NumericError(Error, ArithmeticError):
    """A loss that is not finite."""

    code = 6


class PeerError(Error):
    """Another rank failed."""

    code = 7


class DeviceError(Error):
    """A device failed."""

    code = 8


class DeadlineError(Error, TimeoutError):
    """A wait took longer than its deadline."""

    code = 9


class Interrupted(Error):
    """A callback asked to stop."""

    code = 10


class HandleError(Error, ValueError):
    """An object that was closed."""

    code = 11


class BusyError(Error):
    """Another call on the object is running."""

    code = 12


class ForkedError(Error):
    """The library was in use before fork()."""

    code = 13


class OutOfMemory(Error, MemoryError):
    """The system has no memory left."""

    code = 14


class InternalError(Error):
    """A mistake of the library."""

    code = 15


_ERRORS: dict[int, Type[Error]] = {
    each.code: each
    for each in (
        UsageError,
        ConfigError,
        DoesNotFit,
        DriveError,
        CorruptError,
        NumericError,
        PeerError,
        DeviceError,
        DeadlineError,
        Interrupted,
        HandleError,
        BusyError,
        ForkedError,
        OutOfMemory,
        InternalError,
    )
}


class Sized(c.Structure):
    """A struct whose first member, struct_size, is set."""

    def __init__(self, **members: Any) -> None:
        super().__init__(struct_size=c.sizeof(self), **members)


LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_char_p)
HANG = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)
FILL = c.CFUNCTYPE(
    c.c_int, c.c_void_p, c.c_int32, c.c_int32, c.c_int32, c.c_int64, c.c_int64, c.c_void_p
)
ON_EVALUATION = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int64, c.c_double)


class Sinks(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("context", c.c_void_p),
        ("log", LOG),
        ("hang", HANG),
        ("hang_after_s", c.c_double),
    ]


class PlanStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("fits", c.c_int32),
        ("reserved", c.c_int32),
        ("text", c.c_char_p),
        ("json", c.c_char_p),
    ]


class StepStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("step", c.c_int64),
        ("loss", c.c_double),
        ("grad_norm", c.c_double),
        ("applied", c.c_int32),
        ("left_out", c.c_int32),
    ]


class TensorStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("shape", c.POINTER(c.c_int64)),
        ("rank", c.c_int32),
        ("dtype", c.c_int32),
        ("frozen", c.c_int32),
        ("group", c.c_int32),
        ("source", c.c_char_p),
        ("source_offset", c.c_int64),
        ("source_dtype", c.c_int32),
        ("reserved", c.c_int32),
    ]


class UnitStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("tensors", c.POINTER(TensorStruct)),
        ("tensor_count", c.c_size_t),
        ("frozen", c.c_int32),
        ("reserved", c.c_int32),
    ]


class ViewStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("weights", c.c_void_p),
        ("gradient", c.c_void_p),
        ("count", c.c_int64),
        ("dtype", c.c_int32),
        ("on_device", c.c_int32),
    ]


class InfoStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("offset", c.c_int64),
        ("count", c.c_int64),
        ("frozen", c.c_int32),
        ("reserved", c.c_int32),
    ]


class UseStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("units", c.POINTER(c.c_int32)),
        ("unit_count", c.c_size_t),
        ("pass_", c.c_int32),
        ("reserved", c.c_int32),
        ("seconds", c.c_double),
    ]


class LoadStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("checkpoint", c.c_char_p),
        ("fill", FILL),
        ("context", c.c_void_p),
        ("fills_moments", c.c_int32),
        ("reserved", c.c_int32),
        ("updates", c.c_int64),
    ]


class GroupStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("lr", c.c_double),
        ("weight_decay", c.c_double),
    ]


class UpdateStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("lr", c.c_double),
        ("has_clip", c.c_int32),
        ("has_decay", c.c_int32),
        ("clip", c.c_double),
        ("weight_decay", c.c_double),
        ("groups", c.POINTER(GroupStruct)),
        ("group_count", c.c_size_t),
        ("gradient_scale", c.c_double),
    ]


class StatisticsStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("steps", c.c_int64),
        ("updates", c.c_int64),
        ("host_bytes", c.c_int64),
        ("nvme_bytes", c.c_int64),
        ("nvme_bytes_read", c.c_int64),
        ("nvme_bytes_written", c.c_int64),
        ("last_step_s", c.c_double),
        ("last_stall_s", c.c_double),
        ("device_bytes", c.c_int64),
    ]


class ReportStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("step", c.c_int64),
        ("loss", c.c_double),
        ("grad_norm", c.c_double),
        ("lr", c.c_double),
        ("tokens", c.c_int64),
        ("step_s", c.c_double),
        ("skipped", c.c_int32),
        ("reserved", c.c_int32),
    ]


ON_STEP = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(ReportStruct))


class CallbacksStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("context", c.c_void_p),
        ("step", ON_STEP),
        ("evaluated", ON_EVALUATION),
    ]


class RunStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("first_step", c.c_int64),
        ("last_step", c.c_int64),
        ("first_loss", c.c_double),
        ("last_loss", c.c_double),
        ("held_out_loss", c.c_double),
        ("state_hash", c.c_uint64),
        ("checkpoint", c.c_char_p),
        ("model", c.c_char_p),
        ("stopped", c.c_int32),
        ("reserved", c.c_int32),
    ]


class BatchStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("tokens", c.c_void_p),
        ("targets", c.c_void_p),
        ("count", c.c_int64),
    ]


class LatencyStruct(c.Structure):
    _fields_ = [(name, c.c_double) for name in ("p50_s", "p99_s", "p999_s", "max_s")]


class RatesStruct(Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("mode", c.c_char_p),
        ("block_bytes", c.c_int64),
        ("depth", c.c_int32),
        ("files", c.c_int32),
        ("seconds", c.c_double),
        ("bytes_read", c.c_int64),
        ("bytes_written", c.c_int64),
        ("read_bytes_per_s", c.c_double),
        ("write_bytes_per_s", c.c_double),
        ("cpu_s_per_gb", c.c_double),
        ("read", LatencyStruct),
        ("write", LatencyStruct),
        ("direct", c.c_int32),
        ("verified", c.c_int32),
        ("cut_short", c.c_int32),
        ("reserved", c.c_int32),
    ]


ON_RATES = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(RatesStruct))

_handle, _text, _i32, _i64 = c.c_void_p, c.c_char_p, c.c_int32, c.c_int64
_SIGNATURES: dict[str, list[Any]] = {
    "store_open": [_text, c.POINTER(Sinks), c.POINTER(_handle)],
    "store_add_unit": [_handle, c.POINTER(UnitStruct), c.POINTER(_i32)],
    "store_join": [_handle, c.c_void_p],
    "store_plan": [_handle, c.POINTER(PlanStruct)],
    "store_tensor": [_handle, _i32, _i32, c.POINTER(InfoStruct)],
    "store_load": [_handle, c.POINTER(LoadStruct)],
    "store_order": [_handle, c.POINTER(UseStruct), c.c_size_t, _i32],
    "store_used": [_handle, _i32, c.POINTER(ViewStruct)],
    "store_end_micro_batch": [_handle],
    "store_begin_forward": [_handle],
    "store_end_forward": [_handle],
    "store_use_seconds": [_handle, c.POINTER(c.c_double), c.c_size_t],
    "store_begin": [_handle],
    "store_acquire": [_handle, _i32, _i32, c.POINTER(ViewStruct)],
    "store_acquire_on": [_handle, _i32, _i32, c.c_void_p, c.POINTER(ViewStruct)],
    "store_copy": [_handle, c.c_void_p, c.c_void_p, _i64],
    "store_add_gradient": [_handle, _i32, _i64, _i64, _i32, c.c_void_p, c.c_double],
    "store_release": [_handle],
    "store_step": [_handle, c.POINTER(UpdateStruct), c.POINTER(StepStruct)],
    "store_discard": [_handle],
    "store_save": [_handle, _text, c.POINTER(_text)],
    "store_read": [_handle, _i32, FILL, c.c_void_p],
    "store_read_tensor": [_handle, _i32, _i32, _i32, c.c_void_p, _i64],
    "store_write_tensor": [_handle, _i32, _i32, _i32, _i64, _i64, c.c_void_p],
    "store_statistics": [_handle, c.POINTER(StatisticsStruct)],
    "store_unload": [_handle],
    "store_close": [_handle],
    "train_open": [_text, _text, c.POINTER(Sinks), c.POINTER(_handle)],
    "train_plan": [_handle, c.POINTER(PlanStruct)],
    "train_run": [_handle, c.POINTER(CallbacksStruct), c.POINTER(RunStruct)],
    "train_load": [_handle, _text],
    "train_step": [_handle, c.POINTER(BatchStruct), c.c_double, c.POINTER(StepStruct)],
    "train_evaluate": [_handle, c.POINTER(BatchStruct), c.POINTER(c.c_double)],
    "train_logits": [_handle, c.c_void_p, _i64, c.c_void_p, _i64, c.POINTER(_i64)],
    "train_generate": [_handle, _text, _i64, c.POINTER(_text)],
    "train_save": [_handle, _text, c.POINTER(_text)],
    "train_export": [_handle, _text],
    "train_close": [_handle],
    "bench_io": [_text, c.POINTER(Sinks), ON_RATES, c.c_void_p],
}


def _open() -> c.CDLL:
    """The library of STRATA_LIBRARY, or the wheel's own, or the system's."""
    beside = sorted((Path(__file__).parent / "lib").glob("libstrata*.so*"))
    path = os.environ.get("STRATA_LIBRARY") or (str(beside[0]) if beside else "libstrata.so.0")
    try:
        library = c.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"strata: {path}: {error} (install the wheel, or set STRATA_LIBRARY to libstrata.so)"
        ) from error
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, "strata_" + name)
        function.argtypes = arguments
        function.restype = c.c_int32
    library.strata_version.restype = c.c_char_p
    library.strata_error_text.restype = c.c_char_p
    return library


_library = _open()
version: str = _library.strata_version().decode()


def call(name: str, *arguments: Any) -> None:
    """Calls strata_`name`. Raises the Error of its status."""
    status = getattr(_library, "strata_" + name)(*arguments)
    if status == 0:
        return
    text = _library.strata_error_text().decode(errors="replace")
    raise _ERRORS.get(status, InternalError)(text)


def require(is_right: bool, where: str, given: Any, wanted: str) -> None:
    """Throws where a caller gave a value of the wrong kind."""
    if not is_right:
        raise ConfigError(f"{where}: {given!r} (give {wanted})")


def text_of(given: Any, where: str) -> bytes:
    """A text for the library, which would see only what is before a zero byte."""
    require(isinstance(given, str) and "\0" not in given, where, given, "a text without zero bytes")
    try:
        encoded: bytes = given.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where}: {given!r}: it has no UTF-8 (give another text)") from None
    return encoded


def path_of(given: Any, where: str) -> bytes:
    require(isinstance(given, (str, bytes, os.PathLike)), where, given, "a path")
    path = os.fsencode(given)
    require(b"\0" not in path, where, given, "a path without zero bytes")
    return path


def close_quietly(name: str, handle: Optional[int]) -> None:
    """Closes a handle where nobody can be told of a failure."""
    if handle is not None and _library is not None:
        getattr(_library, "strata_" + name)(handle)
