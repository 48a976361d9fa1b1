# SPDX-License-Identifier: Apache-2.0
"""Values of tensors that pass between the library and its callers, piece by piece."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Union

from . import _library as lib

if TYPE_CHECKING:
    import numpy as np

Initial = Union[
    Mapping[str, "np.ndarray"], Callable[[str, int, "np.ndarray"], Any]
]
"""Values by tensor name; or a function (name, first, out) that fills out[n] with the elements from
`first` on, and returns False to stop."""


def floats(address: int, count: int) -> "np.ndarray":
    import numpy as np

    return np.ctypeslib.as_array((c.c_float * count).from_address(address))


def real(values: Any, where: str) -> "np.ndarray":
    """An array of real numbers."""
    import numpy as np

    try:
        given = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise lib.ConfigError(f"{where}: {error} (give an array of real numbers)") from error
    if not np.can_cast(given.dtype, np.float32, "same_kind"):
        raise lib.ConfigError(f"{where}: an array of {given.dtype} (give real numbers)")
    return given


def check_values(
    plane: str,
    given: Optional[Initial],
    shapes: Mapping[str, tuple[int, ...]],
    needed: Sequence[str] = (),
) -> None:
    """Throws where given values have not the shape of their tensor, or needed ones are missing."""
    if callable(given):
        return
    lib.require(
        given is None or isinstance(given, Mapping), f"load: {plane}", given, "arrays by name"
    )
    for name in needed:
        if given is None or name not in given:
            raise lib.ConfigError(f"load: {name}: no values are given (give them)")
    for name, values in (given or {}).items():
        if name not in shapes:
            continue
        shape = real(values, f"load: {name}: {plane}").shape
        if shape != shapes[name]:
            raise lib.ConfigError(f"load: {name}: {plane} of shape {shape} (give {shapes[name]})")


def fill(
    initial: Optional[Initial], name: str, first: int, count: int, out: int
) -> Any:
    """What a function returns; None where a mapping has the values."""
    values = floats(out, count)
    if callable(initial):
        return initial(name, first, values)
    if initial is None or name not in initial:
        raise lib.ConfigError(f"load: {name}: no values are given (give them)")
    given = real(initial[name], f"load: {name}").reshape(-1)
    if first + count > given.size:
        raise lib.ConfigError(
            f"load: {name}: {given.size} elements are given, it has {first + count} or more"
        )
    values[:] = given[first : first + count]
    return None
