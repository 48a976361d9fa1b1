# SPDX-License-Identifier: Apache-2.0
"""PyTorch models whose weights, gradients and optimizer state lie in a store.

    options = {"host_memory": "2GiB", "nvme": "/mnt/a"}
    state = strata.torch.offload(model, lambda: loss_of(model, batch), options)
    optimizer = strata.torch.Optimizer(state, lr=1e-4)
    for batch in batches:
        loss_of(model, batch).backward()
        optimizer.step()

The model computes as before, by PyTorch's hooks (three questions to it are private functions of
PyTorch, see _autograd.py): a module's weights are in memory while it computes forward or backward,
and its gradients go to the store as they are made. A weight that is used outside its module is one
that `example` showed or `keep` names; the use of any other is an error that names it. Activation
checkpointing works as before, too, and so do evaluation, generate, state_dict(), save_pretrained()
and load_state_dict(). What cannot work says what to call.

Weights are float32, or bfloat16 with exact float32 masters in the store. The model computes on the
CPU or, with `device`, on an NVIDIA GPU, to whose memory the store brings weights and from where it
takes gradients while the GPU computes.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Collection, Optional, Union

import torch
from torch import nn

from .._library import ConfigError
from .._plan import Options
from ._autograd import check_version
from ._offload import Offloaded
from ._optimizer import Optimizer
from ._parts import parts_of
from ._ranks import Ranks

__all__ = ["Offloaded", "Optimizer", "offload", "parts_of"]

check_version()


def offload(
    model: nn.Module,
    example: Callable[[], torch.Tensor],
    options: Optional[Options] = None,
    *,
    parts: Optional[list[tuple[str, nn.Module]]] = None,
    weights: Optional[Union[str, "os.PathLike[str]"]] = None,
    new: Collection[str] = (),
    keep: Collection[str] = (),
    group: Any = None,
    shard: bool = False,
    network: str = "tcp",
    device: Optional[Union[str, torch.device]] = None,
) -> Offloaded:
    """Moves the model's weights to a store, with moments of AdamW that are zero.

    example: computes a loss of one micro-batch. It runs once, forward and backward, before the move,
        and shows the order in which modules are used. Later micro-batches must have that order, or
        leave out some of it; what is left out counts as gradients of zero.
    options: those of Store; "accumulate" is the number of micro-batches of a step. "betas", "eps",
        "weight_decay" and "clip" are those of torch.optim.AdamW where they are not given, and the
        recipe is that of the weights' type.
    weights: a Hugging Face directory. Weights and buffers are read from its safetensors, one
        tensor at a time, so that the model's parameters may be on the meta device. Adapters of PEFT
        have the values of the model; any other that the directory lacks is an error.
    new: names of parameters and buffers, or of modules, whose values are the model's where the directory lacks
        them, such as a head that is trained from nothing.
    keep: names of parameters that are in memory for a whole micro-batch, since the training uses them
        outside of their modules where the example does not; reads of others there are errors. TRL's
        trainers use the weight of the head so.
    group: a process group of torch.distributed whose ranks train copies of the model on different data.
        Gradients are their means over the ranks. All ranks use the same modules in the same order.
    shard: True: the ranks share one copy of the state, of which each has its part in memory and on
        drives, as ZeRO's stage 3 does (options: "zero_stage", "shard_ranks", "reduce_dtype"). Then
        all ranks make all calls together, also evaluating(), state_dict() and save(), and a step
        that one of them drops is dropped by all. host_memory is that of each rank.
    network: what carries the shards: "tcp", or "group": send and receive of the process group.
    device: "cuda" or "cuda:1" computes on that GPU; the model's buffers move there. The option
        "device_memory" says how much of its memory the store may take; activations need the rest.
        Without it, the device of the weights.
    parts: modules by name that are brought to memory one by one, instead of parts_of(model).

    Afterwards reads of parameters raise UsageError except where their module computes; the few calls that
    find NaN instead, such as x.data = parameter and torch.tensor(parameter), are in docs/embedding.md. The
    optimizer is the store's: Optimizer, or step() of the result. Raises DoesNotFit with what would fit; the model
    is then as before.
    """
    if isinstance(keep, str):
        raise ConfigError(f"offload: keep: the text {keep!r} (give a list of names)")
    directory = None if weights is None else os.fspath(weights)
    ranks = Ranks(group, shard, network)
    return Offloaded(model, example, options, parts, directory, list(keep), ranks, device, new)
