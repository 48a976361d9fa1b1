# SPDX-License-Identifier: Apache-2.0
"""The parts of a model: modules whose parameters are in memory together."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .. import _library as lib


class Part:
    """A module that is brought to memory while it computes, and the units that its parameters are
    in: its own, and those of parts before it that share a parameter with it."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self.module = module
        self.units: list[str] = []


def parts_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules that are brought to memory one by one: the members of lists that are of one type
    with another member, and outside of these the smallest modules that have parameters of their own.
    What remains, parameters of modules that contain such lists, stays in memory for a micro-batch."""
    found: list[tuple[str, nn.Module]] = []
    seen: set[int] = set()

    def visit(name: str, module: nn.Module) -> None:
        if id(module) in seen or next(module.parameters(), None) is None:
            return
        seen.add(id(module))
        own = any(True for _ in module.parameters(recurse=False))
        children = list(module.named_children())
        has_list = any(_is_list(each) for each in module.modules())
        if not children or (own and not has_list and module is not model):
            found.append((name, module))
            return
        kinds = [type(child) for _, child in children]
        for key, child in children:
            path = f"{name}.{key}" if name else key
            if not _is_list(module) or kinds.count(type(child)) == 1:
                visit(path, child)
            elif id(child) not in seen:
                seen.add(id(child))
                found.append((path, child))

    visit("", model)
    return found


def check_parts(parts: Any) -> None:
    """Throws where they are not pairs as those of parts_of()."""
    are_pairs = isinstance(parts, (list, tuple)) and all(
        isinstance(each, (list, tuple)) and len(each) == 2 and isinstance(each[1], nn.Module)
        for each in parts
    )
    wanted = "pairs of a name and a module, such as parts_of(model) returns"
    lib.require(are_pairs, "offload: parts", parts, wanted)


def _is_list(module: nn.Module) -> bool:
    """Whether it is a list of modules with parameters, some of one type."""
    children = list(module.children())
    return (
        isinstance(module, (nn.ModuleList, nn.Sequential))
        and len({type(child) for child in children}) < len(children)
        and all(next(child.parameters(), None) is not None for child in children)
    )


def tensors_in(values: Any) -> list[torch.Tensor]:
    """The tensors of nested lists, tuples and dictionaries."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        return [tensor for each in values for tensor in tensors_in(each)]
    return []


def unrepeated(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the same memory that has each element of it once, where expand() repeats them."""
    if tensor.layout != torch.strided or 0 not in tensor.stride():
        return tensor
    return tensor[tuple(slice(1) if step == 0 else slice(None) for step in tensor.stride())]
