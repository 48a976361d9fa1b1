# SPDX-License-Identifier: Apache-2.0
"""What a forward or a backward over a store cannot do."""

from __future__ import annotations

import sys
from typing import Any, Iterable

import torch
from torch import nn

from .. import _library as lib
from ._autograd import in_transform


def refuse_written(names: Iterable[str]) -> None:
    for name in names:
        raise lib.ConfigError(
            f"offload: {name}: the model writes it while it computes, which the store does not "
            "keep (nn.Embedding(max_norm=...) does so: leave max_norm out, or normalize the weight "
            "between steps with model.state_dict() and model.load_state_dict())"
        )


def refuse_transforms() -> None:
    jit: Any = torch.jit  # whose is_tracing() has no type
    if in_transform() or jit.is_tracing():
        raise lib.UsageError(
            "offload: torch.func, torch.vmap and torch.jit.trace cannot transform a model whose weights lie in "
            "a store (call restore() before, and offload the model again after)"
        )


def refuse_parallel() -> None:
    """Throws within a forward of DistributedDataParallel, which finds no gradients to average."""
    wrapper = nn.parallel.DistributedDataParallel
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is wrapper.forward.__code__ and frame.f_locals["self"].process_group.size() > 1:
            raise lib.UsageError(
                "offload: DistributedDataParallel around the model: gradients go to the store as they are made, "
                "and it would average none (give offload() the process group as group=, which averages them, "
                "and leave DistributedDataParallel out)"
            )


def refuse_second_derivatives() -> None:
    if torch.is_grad_enabled():  # within a backward
        raise lib.UsageError(
            "offload: create_graph=True: the store has no second derivatives (gradient penalties and Hessian "
            "products need a model without a store: call restore() before; a penalty may be estimated "
            "from two forwards)"
        )
