# SPDX-License-Identifier: Apache-2.0
"""Ranks of torch.distributed that train copies of a model on different data."""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import distributed


class Ranks:
    """A process group, or this process alone where it is None. All ranks make the same calls."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._size: int = distributed.get_world_size(group) if group is not None else 1

    def mean(self, gradient: torch.Tensor) -> torch.Tensor:
        """The mean of a gradient over the ranks, float32 where there are several."""
        if self._size == 1:
            return gradient
        mean = gradient.float() / self._size
        distributed.all_reduce(mean, group=self._group)
        return mean

    def share(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Gives all ranks the weights of the first, where they have values."""
        if self._size == 1:
            return
        first = distributed.get_global_rank(self._group, 0)
        for values in weights.values():
            if values.device.type != "meta":
                distributed.broadcast(values, first, group=self._group)
