# SPDX-License-Identifier: Apache-2.0
"""Whole runs, and models that the caller drives step by step."""

from __future__ import annotations

import ctypes as c
import json
import math
import os
import tempfile
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Type, Union

from . import _library as lib
from ._callbacks import Guard, sinks_of
from ._plan import Options, Plan, options_text, plain, plan_of
from ._units import StepResult, step_result_of

if TYPE_CHECKING:
    import numpy as np

Tokens = Union["np.ndarray", Sequence[int]]
Path = Union[str, "os.PathLike[str]"]

_CONFIG = {"architectures", "model_type"}  # what a config.json has, and options do not


@dataclass(frozen=True)
class StepReport:
    """One step of a run. loss: mean over `tokens` targets, nats. skipped: it updated nothing; it has
    no target, and the loss is NaN, or with fp16 its gradients overflowed."""

    step: int
    loss: float
    grad_norm: float
    lr: float
    tokens: int
    step_s: float
    skipped: bool


@dataclass(frozen=True)
class RunResult:
    """What a run leaves. model: the directory of the trained model; None: the run was stopped."""

    first_step: int
    last_step: int
    first_loss: float
    last_loss: float
    held_out_loss: Optional[float]
    state_hash: int
    checkpoint: str
    model: Optional[str]
    stopped: bool


class Model:
    """A model directory: a whole run, or steps that the caller drives.

    options: options of `strata train` by name. With data and out, run() does the whole run; without
        them the calls are load(), then step(), evaluate(), logits(), generate(), save(), export().
    cache: a directory that keeps measurements of the machine; None: each plan measures.

    Threads: any, one call at a time. Raises subclasses of strata.Error.
    """

    def __init__(
        self,
        options: Optional[Options] = None,
        *,
        cache: Optional[Path] = None,
        log: Optional[Callable[[int, str], None]] = None,
        **more: Any,
    ) -> None:
        self._handle: Optional[int] = None
        sinks, self._kept = sinks_of(log)
        handle = c.c_void_p()
        where = None if cache is None else lib.path_of(cache, "cache")
        text = options_text(options, **more)
        lib.call("train_open", text, where, c.byref(sinks), c.byref(handle))
        self._handle = handle.value

    def _call(self, name: str, *arguments: Any) -> None:
        if self._handle is None:
            raise lib.HandleError(f"{name}: the model is closed (make another)")
        lib.call(name, self._handle, *arguments)

    def plan(self) -> Plan:
        """Where state lies and how long a step takes. Raises DoesNotFit with what would fit."""
        struct = lib.PlanStruct()
        self._call("train_plan", c.byref(struct))
        return plan_of(struct)

    def run(
        self,
        progress: Optional[Callable[[StepReport], Any]] = None,
        evaluated: Optional[Callable[[int, float], Any]] = None,
    ) -> RunResult:
        """Runs the whole run, once.

        progress: called after each step, evaluated(step, loss) after each evaluation. When one
            returns False or raises, the run finishes the step that has begun meanwhile, which is
            the next one, writes a checkpoint and ends; what it raised is raised here. Nothing else
            that it returns ends the run. Ctrl-C ends the run so, too.
        """
        guarded = Guard()
        callbacks = lib.CallbacksStruct()
        to_progress = progress or (lambda _: None)
        callbacks.step = lib.ON_STEP(  # without progress, too: it sees an interrupt
            lambda _, at: guarded(lambda: to_progress(_report(at.contents)))
        )
        if evaluated is not None:
            to_evaluated = evaluated
            callbacks.evaluated = lib.ON_EVALUATION(
                lambda _, step, loss: guarded(lambda: to_evaluated(step, loss))
            )
        result = lib.RunStruct()
        with guarded:
            self._call("train_run", c.byref(callbacks), c.byref(result))
        return RunResult(
            first_step=result.first_step,
            last_step=result.last_step,
            first_loss=result.first_loss,
            last_loss=result.last_loss,
            held_out_loss=None if math.isnan(result.held_out_loss) else result.held_out_loss,
            state_hash=result.state_hash,
            checkpoint=os.fsdecode(result.checkpoint),
            model=os.fsdecode(result.model) or None,
            stopped=bool(result.stopped),
        )

    def load(self, checkpoint: Optional[Path] = None) -> None:
        """Loads the model's weights, or the state of a checkpoint."""
        self._call(
            "train_load", None if checkpoint is None else lib.path_of(checkpoint, "load: checkpoint")
        )

    def step(self, tokens: Tokens, targets: Tokens, lr: float) -> StepResult:
        """Forward, backward and update.

        tokens, targets: [M, B, T] of int32, or flat; targets[i] follows tokens[i], -1: no target.
        """
        batch, _kept = _batch(tokens, targets)
        result = lib.StepStruct()
        self._call("train_step", c.byref(batch), lr, c.byref(result))
        return step_result_of(result)

    def evaluate(self, tokens: Tokens, targets: Tokens) -> float:
        """The mean loss over the batch's targets, nats."""
        batch, _kept = _batch(tokens, targets)
        loss = c.c_double()
        self._call("train_evaluate", c.byref(batch), c.byref(loss))
        return loss.value

    def logits(self, context: Tokens, room: int = 1 << 20) -> "np.ndarray":
        """The logits [V] of the token that follows context [n], float32; V is at most `room`."""
        import numpy as np

        tokens = np.ascontiguousarray(context, np.int32).reshape(-1)
        values = np.empty(room, np.float32)
        size = c.c_int64()
        self._call(
            "train_logits", tokens.ctypes.data, tokens.size, values.ctypes.data, room, c.byref(size)
        )
        return values[: size.value].copy()

    def generate(self, prompt: str, tokens_max: int = 64) -> str:
        """Continues the prompt with the most likely tokens."""
        text = c.c_char_p()
        self._call("train_generate", lib.text_of(prompt, "generate"), tokens_max, c.byref(text))
        return (text.value or b"").decode(errors="replace")

    def save(self, directory: Path) -> str:
        """Writes a checkpoint below the directory and returns its path."""
        path = c.c_char_p()
        self._call("train_save", lib.path_of(directory, "save"), c.byref(path))
        return os.fsdecode(path.value or b"")

    def export(self, directory: Path) -> None:
        """Writes the model as a model directory, which must not exist yet."""
        self._call("train_export", lib.path_of(directory, "export"))

    def close(self) -> None:
        """Ends threads and frees memory."""
        if self._handle is not None:
            self._call("train_close")
            self._handle = None

    def __enter__(self) -> "Model":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __del__(self) -> None:
        lib.close_quietly("train_close", self._handle)


def plan(
    model: Any = None,
    options: Optional[Options] = None,
    *,
    cache: Optional[Path] = None,
    **more: Any,
) -> Plan:
    """The plan of a run: plan("dir", host_memory="24GiB", nvme=["/mnt/a"]).

    Creates nothing. Without the option machine, and without measurements in `cache`, it measures
    this machine for some seconds. Raises DoesNotFit with what would fit.

    model: a directory, in which config.json is enough, or a configuration: one of Transformers, or
        the members of a config.json. Options may have it, and be given in its place.
    """
    if options is None and isinstance(model, Mapping) and not _CONFIG.intersection(model):
        model, options = None, model
    given = {**(options or {}), **more}
    if model is not None:
        given["model"] = model
    config = given.get("model")
    if config is None or isinstance(config, (str, os.PathLike)):
        with Model(given, cache=cache) as planned:
            return planned.plan()
    with tempfile.TemporaryDirectory(prefix="strata-") as directory:
        _write_config(config, directory)
        try:
            with Model({**given, "model": directory}, cache=cache) as planned:
                return planned.plan()
        except lib.Error as error:  # of the caller's model, not of a file that nobody finds
            raise type(error)(str(error).replace(directory, "(model)")) from None


def _write_config(config: Any, directory: str) -> None:
    members = config.to_dict() if hasattr(config, "to_dict") else config
    lib.require(isinstance(members, Mapping), "plan: model", config, "a path or a configuration")
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump(dict(members), file, default=plain)


def train(
    options: Optional[Options] = None,
    *,
    progress: Optional[Callable[[StepReport], Any]] = None,
    evaluated: Optional[Callable[[int, float], Any]] = None,
    cache: Optional[Path] = None,
    log: Optional[Callable[[int, str], None]] = None,
    **more: Any,
) -> RunResult:
    """A whole run: train(model="dir", data="text.txt", out="run", host_memory="24GiB").

    progress: called with a StepReport after each step, as Model.run() says; a bar of tqdm needs
        progress=lambda step: bar.update().
    """
    with Model(options, cache=cache, log=log, **more) as model:
        return model.run(progress, evaluated)


def _report(struct: lib.ReportStruct) -> StepReport:
    return StepReport(
        step=struct.step,
        loss=struct.loss,
        grad_norm=struct.grad_norm,
        lr=struct.lr,
        tokens=struct.tokens,
        step_s=struct.step_s,
        skipped=bool(struct.skipped),
    )


def _batch(tokens: Tokens, targets: Tokens) -> tuple[lib.BatchStruct, Any]:
    import numpy as np

    inputs = np.ascontiguousarray(tokens, np.int32)
    wanted = np.ascontiguousarray(targets, np.int32)
    if inputs.size != wanted.size:
        raise lib.ConfigError(
            f"batch: {inputs.size} tokens and {wanted.size} targets (give as many of each)"
        )
    batch = lib.BatchStruct(
        tokens=inputs.ctypes.data, targets=wanted.ctypes.data, count=inputs.size
    )
    return batch, (inputs, wanted)
