# SPDX-License-Identifier: Apache-2.0
"""A process group of torch.distributed as the network of a store's ranks."""

from __future__ import annotations

import queue
import threading
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
from torch import distributed

from .._ranks import Transport


class _Transfer:
    """Bytes on their way, in memory of PyTorch's, which may use it after the store gave them up."""

    def __init__(self, values: torch.Tensor, into: Optional[torch.Tensor]) -> None:
        self.values = values
        self.into = into
        self.is_over = threading.Event()
        self.was_interrupted = False
        self.error: Optional[Exception] = None


class _Waiters:
    """Threads that wait for PyTorch's transfers, which cannot be interrupted. One is made when all
    others wait."""

    def __init__(self) -> None:
        self._tasks: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def run(self, task: Callable[[], None]) -> None:
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, daemon=True).start()
        self._tasks.put(task)

    def _work(self) -> None:
        while True:
            self._tasks.get()()
            with self._lock:
                self._idle += 1


class GroupTransport(Transport):
    """Moves bytes by send and receive of a process group with CPU tensors, such as one of Gloo or MPI.
    No other messages may use the tags from 1000 on."""

    FIRST_TAG = 1000
    TIMEOUT = timedelta(days=1)  # a rank that is gone is noticed by the store

    def __init__(self, group: Any) -> None:
        self._group = group
        self._waiters = _Waiters()

    def _rank(self, peer: int) -> int:
        return distributed.get_global_rank(self._group, peer)

    def _begin(self, transfer: _Transfer, work: Any) -> _Transfer:
        def wait() -> None:
            try:
                work.wait(self.TIMEOUT)
            except Exception as error:  # the group's connection is lost
                transfer.error = error
            transfer.is_over.set()

        self._waiters.run(wait)
        return transfer

    def send(self, channel: int, peer: int, data: memoryview) -> Any:
        values = torch.frombuffer(data, dtype=torch.uint8).clone()
        work = distributed.isend(
            values, self._rank(peer), group=self._group, tag=self.FIRST_TAG + channel
        )
        return self._begin(_Transfer(values, None), work)

    def receive(self, channel: int, peer: int, data: memoryview) -> Any:
        values = torch.empty(len(data), dtype=torch.uint8)
        work = distributed.irecv(
            values, self._rank(peer), group=self._group, tag=self.FIRST_TAG + channel
        )
        into = torch.frombuffer(data, dtype=torch.uint8)
        return self._begin(_Transfer(values, into), work)

    def wait(self, transfer: _Transfer, seconds: float) -> bool:
        if not transfer.is_over.wait(seconds):
            raise TimeoutError("the process group did not move the bytes in time")
        if transfer.was_interrupted:
            return False
        if transfer.error is not None:
            raise transfer.error
        if transfer.into is not None:
            transfer.into.copy_(transfer.values)
        return True

    def interrupt(self, transfer: _Transfer) -> None:
        transfer.was_interrupted = True
        transfer.is_over.set()

    def end(self, transfer: _Transfer) -> None:
        transfer.into = None
