# SPDX-License-Identifier: Apache-2.0
"""Stores that share the state of one model: where they meet, and the network that they use."""

from __future__ import annotations

import ctypes as c
import os
import threading
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _library as lib

DONE, INTERRUPTED, FAILED = 0, 1, 2


class Transport:
    """A framework's own means to move bytes between ranks, which a store uses in place of TCP.

    Subclasses have these methods. Several threads call them, for one channel one at a time. The k-th
    send of a rank to another over a channel meets the k-th receive there, of equal size.
    """

    def send(self, channel: int, peer: int, data: memoryview) -> Any:
        """Begins to send to rank `peer`, without waiting for it; returns the transfer. The data stay
        as they are until it is ended."""
        raise NotImplementedError

    def receive(self, channel: int, peer: int, data: memoryview) -> Any:
        """Begins to fill `data` from rank `peer`, without waiting for it; returns the transfer."""
        raise NotImplementedError

    def wait(self, transfer: Any, seconds: float) -> bool:
        """Waits until the bytes have moved. False: it was interrupted. Raises when it fails or takes
        longer."""
        raise NotImplementedError

    def interrupt(self, transfer: Any) -> None:
        """Lets wait() return soon, because another rank is gone. Called by any thread."""

    def end(self, transfer: Any) -> None:
        """Ends a transfer, moved or not: its data must not be used any more."""


@dataclass(frozen=True)
class Ranks:
    """Which of the option `ranks` a store is, and where they meet: by directory, address or transport.

    ranks_on_node: ranks of a machine, which follow each other; 0: all are on this one.
    directory: on one machine, one of theirs alone, which no other user may enter; it need not exist.
    address: HOST:PORT where rank 0 listens. secret: with it, 16 bytes or more that only they know.
    interface: of this machine, for the data, which TCP carries over a network that must be trusted.
    transport: carries the data instead.
    connect_s: seconds in which all ranks come.
    """

    rank: int
    ranks_on_node: int = 0
    directory: Optional[Union[str, "os.PathLike[str]"]] = None
    address: str = ""
    secret: str = ""
    interface: str = ""
    transport: Optional[Transport] = None
    connect_s: float = 300.0


_BEGIN = c.CFUNCTYPE(
    c.c_int, c.c_void_p, c.c_int32, c.c_int32, c.c_void_p, c.c_int64, c.POINTER(c.c_void_p)
)
_WAIT = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_double)
_TELL = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)


class _TransportStruct(lib.Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("context", c.c_void_p),
        ("send", _BEGIN),
        ("receive", _BEGIN),
        ("wait", _WAIT),
        ("interrupt", _TELL),
        ("end", _TELL),
    ]


class _RanksStruct(lib.Sized):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("rank", c.c_int32),
        ("ranks_on_node", c.c_int32),
        ("directory", c.c_char_p),
        ("address", c.c_char_p),
        ("secret", c.c_char_p),
        ("interface", c.c_char_p),
        ("transport", c.POINTER(_TransportStruct)),
        ("connect_s", c.c_double),
    ]


class Lent:
    """The callbacks of a transport. They must live as long as the store's ranks; `raised` is the
    first exception of one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._transfers: dict[int, Any] = {}
        self._last = 0
        self._lock = threading.Lock()
        self.raised: Optional[BaseException] = None
        self.struct = _TransportStruct(
            send=_BEGIN(self._begin(transport.send)),
            receive=_BEGIN(self._begin(transport.receive)),
            wait=_WAIT(self._wait),
            interrupt=_TELL(self._tell(transport.interrupt, ends=False)),
            end=_TELL(self._tell(transport.end, ends=True)),
        )

    def _begin(self, call: Any) -> Any:
        def begin(_: Any, channel: int, peer: int, data: int, size: int, name: Any) -> int:
            try:
                memory = memoryview((c.c_char * size).from_address(data)).cast("B")
                transfer = call(channel, peer, memory)
            except BaseException as error:
                self.raised = self.raised or error
                return FAILED
            with self._lock:
                self._last += 1
                self._transfers[self._last] = transfer
                name[0] = self._last
            return 0

        return begin

    def _wait(self, _: Any, name: int, seconds: float) -> int:
        try:
            return DONE if self._transport.wait(self._transfers[name], seconds) else INTERRUPTED
        except BaseException as error:
            self.raised = self.raised or error
            return FAILED

    def _tell(self, call: Any, ends: bool) -> Any:
        def tell(_: Any, name: int) -> None:
            with self._lock:
                transfer = self._transfers.pop(name) if ends else self._transfers.get(name)
            try:
                call(transfer)
            except BaseException as error:
                self.raised = self.raised or error

        return tell


def struct_of(ranks: Ranks, lent: Optional[Lent]) -> _RanksStruct:
    def text(name: str) -> Optional[bytes]:
        value = getattr(ranks, name)
        return lib.text_of(value, f"join: {name}") if value else None

    secret, directory = ranks.secret, ranks.directory
    is_text = isinstance(secret, str) and "\0" not in secret
    lib.require(is_text, "join: secret", "(not shown)", "a text without zero bytes")
    struct = _RanksStruct(
        rank=ranks.rank,
        ranks_on_node=ranks.ranks_on_node,
        directory=None if directory is None else lib.path_of(directory, "join: directory"),
        address=text("address"),
        secret=secret.encode() or None,
        interface=text("interface"),
        connect_s=ranks.connect_s,
    )
    if lent is not None:
        struct.transport = c.pointer(lent.struct)
    return struct
