# SPDX-License-Identifier: Apache-2.0
"""Ranks of torch.distributed that train one model on different data."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
import zlib
from dataclasses import replace
from typing import Any, Iterable, Optional

import torch
from torch import distributed

from .. import _library as lib
from .._ranks import Ranks as StoreRanks
from .._store import Store
from .._units import Use
from ._lent import GroupTransport
from ._parts import unrepeated

# Who carries what a sharded store's ranks exchange.
NETWORKS = ("tcp", "group")


class Ranks:
    """A process group, or this process alone where it is None. All ranks make the same calls.

    shard: their stores share one copy of the state, and sum gradients; else each has all of it, and
    gradients are averaged here."""

    def __init__(self, group: Any, shard: bool = False, network: str = "tcp") -> None:
        self._group = group
        self._size: int = distributed.get_world_size(group) if group is not None else 1
        if network not in NETWORKS:
            raise lib.ConfigError(f"offload: network {network}: unknown (give one of {NETWORKS})")
        if shard and group is None:
            raise lib.ConfigError("offload: shard without a group (give the ranks' process group)")
        self.shards = shard and self._size > 1
        self._network = network
        self._averaged = 0  # a checksum of the names of gradients of this step

    def are_one(self) -> bool:
        return self._size == 1

    def options(self) -> dict[str, Any]:
        """What the store must know of the ranks."""
        return {"ranks": self._size} if self.shards else {}

    def join(self, store: Store) -> None:
        if not self.shards:
            return
        own: int = distributed.get_rank(self._group)
        hosts = self._all(socket.gethostname())
        on_node = hosts.count(hosts[0])
        if hosts != [host for host in hosts[::on_node] for _ in range(on_node)]:
            raise lib.ConfigError(
                f"offload: the ranks are on {hosts} (start as many on each machine, one after another)"
            )
        transport = GroupTransport(self._group) if self._network == "group" else None
        place = self._first(_meeting_place(hosts, on_node, transport) if own == 0 else None)
        interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        try:
            store.join(StoreRanks(own, on_node, interface=interface, transport=transport, **place))
        finally:
            if own == 0 and "directory" in place:
                shutil.rmtree(place["directory"], ignore_errors=True)

    def _all(self, value: str) -> list[str]:
        values: list[Any] = [None] * self._size
        distributed.all_gather_object(values, value, group=self._group)
        return values

    def _first(self, value: Any) -> Any:
        """What the first rank gives."""
        values = [value]
        first = distributed.get_global_rank(self._group, 0)
        distributed.broadcast_object_list(values, first, group=self._group)
        return values[0]

    def of_first(self, value: Any) -> Any:
        """Where ranks share one state, what the first gives."""
        return self._first(value) if self.shards else value

    def of_first_if_same(self, order: list[Use]) -> list[Use]:
        """An order with the seconds that the first rank measured, where that has the same order; the
        store refuses others."""
        first: list[Use] = self.of_first(order)
        same = [replace(use, seconds=0) for use in first] == [
            replace(use, seconds=0) for use in order
        ]
        return first if same else order

    def mean(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        """What the gradient of a parameter adds to that of the store: its mean over the ranks, float32 where there are
        several; or, where the store sums, its part of the mean."""
        if self._size == 1:
            return gradient
        mean = gradient.float() / self._size
        if not self.shards:
            self._averaged = zlib.crc32(name.encode(), self._averaged)
            distributed.all_reduce(mean, group=self._group)
        return mean

    def begin_step(self) -> None:
        self._averaged = 0

    def require_same_gradients(self) -> None:
        """Throws on all ranks where means of this step are of gradients of different parameters."""
        if self._size > 1 and not self.shards and len(set(self._all(str(self._averaged)))) > 1:
            raise lib.UsageError(
                "offload: step: the ranks made gradients of different parameters, or in another order, and "
                "the means are of unlike ones (use the same modules in the same order on all ranks, or "
                "give offload() shard=True, which counts what a rank leaves out as zero; zero_grad() drops "
                "the step)"
            )

    def share(self, tensors: Iterable[torch.Tensor]) -> None:
        """Gives all ranks the weights and buffers of the first, where they have values."""
        if self._size == 1:
            return
        first = distributed.get_global_rank(self._group, 0)
        for values in tensors:
            if values.device.type != "meta":
                distributed.broadcast(unrepeated(values), first, group=self._group)


def _meeting_place(
    hosts: list[str], on_node: int, transport: Optional[GroupTransport]
) -> dict[str, str]:
    """Where the first rank waits for the others. A transport brings its address, and on several
    machines the port is one that is free now."""
    if on_node == len(hosts):
        return {} if transport is not None else {"directory": tempfile.mkdtemp(prefix="strata-")}
    with socket.socket() as probe:
        probe.bind(("", 0))
        return {
            "address": f"{hosts[0]}:{probe.getsockname()[1]}",
            "secret": secrets.token_hex(16),
        }
