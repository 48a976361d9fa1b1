# SPDX-License-Identifier: Apache-2.0
"""Two questions to autograd for which PyTorch has no public function.

Forward hooks must know whether a backward calls them, as the recomputation of a checkpointed region
does. And hooks on saved tensors do not nest: those of a part must pass other tensors on to the hooks
around them, such as those of torch.autograd.graph.save_on_cpu.
"""

from __future__ import annotations

from typing import Any, Callable, TypeVar

import torch

_TESTED = "2.15"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncompiled(function: _Function) -> _Function:
    """A function that torch.compile leaves alone."""
    disable: Any = torch.compiler.disable
    same: _Function = disable(function)
    return same


def in_backward() -> bool:
    """Whether this thread runs a backward."""
    return torch._C._current_graph_task_id() != -1


def saved_tensors_hooks_around() -> Any:
    """The (pack, unpack) of the innermost saved_tensors_hooks, or None."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def check_version() -> None:
    """Throws where this version of PyTorch does not answer both."""
    try:
        in_backward(), saved_tensors_hooks_around()
    except (AttributeError, TypeError) as error:
        raise ImportError(
            f"strata.torch: PyTorch {torch.__version__} does not say whether a backward runs and "
            f"which hooks on saved tensors there are (install torch {_TESTED}, which is tested)"
        ) from error
