# SPDX-License-Identifier: Apache-2.0
"""Where weights come from before they are in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Protocol

import torch

if TYPE_CHECKING:
    import numpy as np


class Source(Protocol):
    """Weights by the name of a parameter."""

    def values(self, name: str) -> torch.Tensor:
        """The whole tensor, valid until the next call."""


class ModuleSource:
    """The values that the model's parameters had."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def values(self, name: str) -> torch.Tensor:
        return self.tensors[name]


def fill(source: Source, name: str, first: int, out: "np.ndarray") -> None:
    """Fills out[n] with the elements from `first` on, in float32."""
    values = source.values(name).reshape(-1)[first : first + out.size]
    torch.from_numpy(out).copy_(values)
