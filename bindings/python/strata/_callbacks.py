# SPDX-License-Identifier: Apache-2.0
"""Python functions that the library calls."""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Any, Callable, Optional, Type

from . import _library as lib


def _is_false(value: Any) -> bool:
    """Whether it is False, or NumPy's."""
    if getattr(value, "dtype", None) == bool and getattr(value, "shape", None) == ():
        return not value
    return value is False


class Guard:
    """Calls functions for the library, which must see no exception, and keeps the first that came.

    A function stops the library by returning False, and by that alone: what others return, such as
    the True of a bar of tqdm that was drawn, has no meaning. An exception is raised at the end of
    the `with` around the library's call. On the main thread that is also so for what the handler of
    Ctrl-C raises, wherever the interrupt comes."""

    def __init__(self) -> None:
        self._raised: Optional[BaseException] = None
        self._handler: Any = None  # of Ctrl-C, before

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> int:
        """1, which stops the library, if function(*arguments) returns False or raises, or an
        interrupt came; else 0."""
        stops = False
        try:
            stops = _is_false(function(*arguments))
        except BaseException as error:  # KeyboardInterrupt too
            self._raised = self._raised or error
        return int(stops or self._raised is not None)

    def __enter__(self) -> "Guard":
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def _interrupt(self, number: int, frame: Any) -> None:
        try:
            self._handler(number, frame)
        except BaseException as error:
            self._raised = self._raised or error

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._handler is not None and signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, self._handler)
        if self._raised is not None and (error is None or isinstance(error, lib.Error)):
            raise self._raised from None


def sinks_of(log: Optional[Callable[[int, str], None]]) -> tuple[lib.Sinks, list[Any]]:
    """Sinks that pass lines to log(level, line), and what must live as long as the handle."""
    if log is None:
        return lib.Sinks(), []

    def on_log(_context: Any, level: int, line: bytes) -> None:
        log(level, line.decode(errors="replace"))

    callback = lib.LOG(on_log)
    return lib.Sinks(log=callback), [callback]
