# SPDX-License-Identifier: Apache-2.0
"""A model over its store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Callable, Iterator, Optional

import torch
from torch import nn

from .. import _library as lib
from .._plan import Options, Plan
from .._store import StepResult, Store, Unit, Use
from ._binder import Binder, take_away
from ._parts import Part, parts_of
from ._recorder import Recorder, evaluated, record
from ._source import ModuleSource, Source, fill
from ._uses import KEPT, StoreUses

Example = Callable[[], torch.Tensor]


class Offloaded:
    """A model over its store. See offload().

    plan: where its state lies. kept: names of parameters that are in memory for a whole micro-batch,
    since they are used outside of a part. untouched: names of those that the example does not use;
    they are as before. store: for statistics and checkpoints.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Example,
        options: Optional[Options],
        parts: Optional[list[tuple[str, nn.Module]]],
    ) -> None:
        self.model = model
        self._parameters = dict(model.named_parameters())
        self._check()
        self._options = dict(options or {})
        self._parts = [Part(name, module) for name, module in parts or parts_of(model)]
        self._unit_of = self._assign()
        before = {name: parameter.data for name, parameter in self._parameters.items()}
        for parameter in self._parameters.values():
            parameter.grad = None
            take_away(parameter)
        self._binder = Binder(model, self._parts, self._parameters, self._unit_of)
        try:
            self._open(example, ModuleSource(before))
        except BaseException:
            self._binder.remove()
            for name, values in before.items():
                self._parameters[name].data = values
            raise
        for name in self.untouched:
            self._parameters[name].data = before[name]

    def _check(self) -> None:
        for name, parameter in self._parameters.items():
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                raise lib.ConfigError(
                    f"offload: {name}: {parameter.dtype} on {parameter.device} (give float32 on the "
                    "CPU)"
                )

    def _assign(self) -> dict[str, str]:
        """The units of parameters: a shared parameter belongs to the first part that has it."""
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        unit_of: dict[str, str] = {}
        for part in self._parts:
            units = []
            for parameter in part.module.parameters():
                units.append(unit_of.setdefault(names[id(parameter)], part.name))
            part.units = sorted(set(units), key=lambda unit: (unit != part.name, unit))
        return unit_of

    def _tensors_of(self) -> dict[str, list[str]]:
        """Names of parameters by unit."""
        tensors: dict[str, list[str]] = {}
        for name, unit in self._unit_of.items():
            tensors.setdefault(unit, []).append(name)
        return tensors

    def _open(self, example: Example, source: Source) -> None:
        recorder = Recorder(self._tensors_of(), self._parameters, source)
        self._binder.uses = recorder
        record(self.model, self._binder, recorder, example)
        if self._unused(recorder) and self.model.training:  # it may leave out parts at random
            with evaluated(self.model):
                record(self.model, self._binder, recorder, example)
        order = self._order(recorder)
        units = self._units({unit for use in order for unit in use.units})
        self.store = Store(units, self._options, order=order, may_leave_out=True)
        self.plan: Plan = self.store.plan()
        self.store.load(lambda name, first, out: fill(source, name, first, out))
        self._uses = StoreUses(
            self.model,
            self.store,
            order,
            self._parameters,
            int(self._options.get("accumulate", 1)),
            recorder.begins_without_gradients,
        )
        self._binder.uses = self._uses
        for name in self.kept:
            take_away(self._parameters[name])

    def _unused(self, recorder: Recorder) -> set[str]:
        """Units that are not used, or are trained and not used backward."""
        used = {unit for use in recorder.uses for unit in use.units}
        backward = {unit for use in recorder.uses if use.which == "backward" for unit in use.units}
        return {
            unit
            for unit, names in self._tensors_of().items()
            if not all(name in self._binder.kept for name in names)
            and unit not in (backward if self._is_trained(names) else used)
        }

    def _is_trained(self, names: list[str]) -> bool:
        return any(self._parameters[n].requires_grad for n in names if n not in self._binder.kept)

    def _order(self, recorder: Recorder) -> list[Use]:
        """What was recorded, without units that are kept or unused."""
        self.kept = sorted(self._binder.kept)
        unused = self._unused(recorder)
        self.untouched = [
            name
            for name in self._parameters
            if name not in self._binder.kept
            and (name not in self._unit_of or self._unit_of[name] in unused)
        ]
        for name in [*self.kept, *self.untouched]:
            self._unit_of.pop(name, None)
        here = set(self._unit_of.values())
        for part in self._parts:
            part.units = [unit for unit in part.units if unit in here]
        uses = [Use([u for u in use.units if u in here], use.which) for use in recorder.uses]
        uses = [use for use in uses if use.units]
        if self.kept:
            uses.insert(0, Use([KEPT], "forward"))
        if any(self._parameters[name].requires_grad for name in self.kept):
            uses.append(Use([KEPT], "backward"))
        return uses

    def _units(self, used: set[str]) -> list[Unit]:
        tensors = {unit: names for unit, names in self._tensors_of().items() if unit in used}
        if self.kept:
            tensors[KEPT] = self.kept
        return [
            Unit(
                unit,
                {name: tuple(self._parameters[name].shape) or (1,) for name in names},
                frozen=[name for name in names if not self._parameters[name].requires_grad],
            )
            for unit, names in tensors.items()
        ]

    def step(
        self, lr: float, *, clip: Optional[float] = None, weight_decay: Optional[float] = None
    ) -> StepResult:
        """Ends the step, after the backward of each of its micro-batches, with an AdamW update."""
        self._end_passes()
        self._uses.mode, self._uses.has_gradients = None, False
        return self.store.step(lr, clip=clip, weight_decay=weight_decay)

    def _end_passes(self) -> None:
        self._binder.unbind()
        self._uses.end_forward()
        self._uses.end_micro_batch()

    def discard(self) -> None:
        """Ends the step at any point without an update, as after an exception."""
        self._binder.discard()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Forwards without a backward, between steps: as torch.no_grad()."""
        with torch.no_grad():
            yield
        self._binder.unbind()
        self._uses.end_forward()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of all trained weights by name."""
        self._end_passes()
        return {
            name: torch.from_numpy(values).view(self._parameters[name].shape)
            for name, values in self.store.state().items()
        }

    def restore(self) -> None:
        """Gives the model its weights back, removes the hooks and closes the store."""
        self._end_passes()
        values = {**self._frozen(), **self.state_dict()}
        for name, tensor in values.items():
            self._parameters[name].data = tensor
        self._binder.remove()
        self.store.close()

    def _frozen(self) -> dict[str, torch.Tensor]:
        """Copies of the weights that are not trained, which a pass shows."""
        found: dict[str, torch.Tensor] = {}
        if all(self._parameters[n].requires_grad for n in [*self._unit_of, *self.kept]):
            return found
        with torch.no_grad():
            self._uses.enter()
            self._uses.each_forward(
                lambda name, weights: found.setdefault(name, weights.clone())
                if not self._parameters[name].requires_grad
                else None
            )
        self._uses.end_forward()
        return found
