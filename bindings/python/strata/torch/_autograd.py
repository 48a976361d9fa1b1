# SPDX-License-Identifier: Apache-2.0
"""Three questions to autograd for which PyTorch has no public function (decision 0051), and when a
backward has ended.

Forward hooks must know whether a backward calls them, as the recomputation of a checkpointed region
does. Hooks on saved tensors do not nest: those of a part must pass other tensors on to the hooks
around them, such as those of torch.autograd.graph.save_on_cpu. Transforms of torch.func give modules
tensors without memory. A backward that fails has no hook, so one that ends well must say so; its last
part then leaves memory.
"""

from __future__ import annotations

from typing import Any, Callable, TypeVar

import torch

_TESTED = "2.15"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncompiled(function: _Function) -> _Function:
    """A function that torch.compile leaves alone."""
    disable: Any = torch.compiler.disable
    reason = (
        "offload: weights of the model lie in a store; for torch.export call restore() before; torch.compile "
        "takes the model without fullgraph=True, and its blocks with it"
    )
    try:
        same: _Function = disable(function, reason=reason)
    except TypeError:  # versions before 2.8 take none
        same = disable(function)
    return same


def current_backward() -> int:
    """A number of the backward that this thread runs, or -1."""
    return torch._C._current_graph_task_id()


def in_backward() -> bool:
    """Whether this thread runs a backward."""
    return current_backward() != -1


def in_transform() -> bool:
    """Whether this thread computes within a transform of torch.func."""
    return torch._C._functorch.maybe_current_level() is not None


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Calls it when the backward that this thread runs has ended without an exception."""
    _queue_of(torch.autograd.graph)(call)


def _queue_of(public: Any) -> Callable[[Callable[[], None]], None]:
    """queue_callback, which was private in versions before 2.15."""
    there = hasattr(public, "queue_callback")
    queue: Any = public if there else getattr(torch.autograd.Variable, "_execution_engine")
    call: Callable[[Callable[[], None]], None] = queue.queue_callback
    return call


def saved_tensors_hooks_around() -> Any:
    """The (pack, unpack) of the innermost saved_tensors_hooks, or None."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def check_version() -> None:
    """Throws where this version of PyTorch does not answer them."""
    try:
        in_backward(), saved_tensors_hooks_around(), in_transform()
        _queue_of(torch.autograd.graph)
    except (AttributeError, TypeError) as error:
        raise ImportError(
            f"strata.torch: PyTorch {torch.__version__} does not say whether a backward runs, "
            "when it ends, and which hooks on saved tensors there are (install "
            f"torch {_TESTED}, which is tested)"
        ) from error
