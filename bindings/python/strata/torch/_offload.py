# SPDX-License-Identifier: Apache-2.0
"""A model over its store."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Callable, Collection, Iterator, Mapping, Optional, Union

import torch
from torch import nn

from .. import _library as lib
from .._plan import Options, Plan
from .._store import Store, check_checkpoint
from .._units import GroupUpdate, StepResult, Unit, Use
from ._binder import Binder, take_away
from ._copies import Copies, Tensors, check_planes, fill_of
from ._device import Buffers, Given, device_of, options_of
from ._habits import Habits, check_memory, check_model, refuse_other_training
from ._parts import Part, check_parts, parts_of
from ._ranks import Ranks
from ._recorder import Recorder, evaluated, record
from ._source import FileSource, ModuleSource, Source, check_kept, check_source, checked_names, fill, materialize
from ._uses import KEPT, StoreUses

Example = Callable[[], torch.Tensor]
ROOT = "(model)"  # the unit of a model that is one part

# Those of torch.optim.AdamW.
_DEFAULTS = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "clip": 0}
# Options of a store that has no model, and how they are said here.
_ELSEWHERE = {
    "device": "the store and the model have one device (give it as offload(..., device=))",
    "groups": "it is not of the store here (give groups of parameters to strata.torch.Optimizer, as to "
    "torch.optim.AdamW)",
    "freeze": "it is not of the store here (call requires_grad_(False) of these parameters before)",
}


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
        weights: Optional[str],
        keep: Collection[str] = (),
        ranks: Optional[Ranks] = None,
        device: Given = None,
        new: Collection[str] = (),
    ) -> None:
        check_model(model)
        lib.require(isinstance(options or {}, Mapping), "offload: options", options, "values by name")
        check_parts(parts or [])
        check_kept(model, keep)
        checked_names(model, new)
        gc.collect()  # of models that are gone, whose cycles hold stores with memory and directories
        self.model = model
        self.device = device_of(model, device)
        for name, way in _ELSEWHERE.items():
            if name in (options or {}):
                raise lib.ConfigError(f"offload: option {name}: {way}")
        self._ranks = ranks or Ranks(None)
        self._habits: Optional[Habits] = None
        self.optimizer: Optional["weakref.ref[Any]"] = None
        self._options = {
            **_DEFAULTS,
            **(options or {}),
            **self._ranks.options(),
            **options_of(self.device),
        }
        self._copies = Copies(self._options.get("nvme"))
        self.betas = _betas_of(self._options["betas"])
        self.eps = float(self._options["eps"])
        self.weight_decay = float(self._options["weight_decay"])
        self._is_restored = False
        self._saved: set[str] = set()  # checkpoints of this state since it was loaded
        self._rescued: dict[str, torch.Tensor] = {}  # frozen weights that a failed load lost
        before = {name: p.data for name, p in model.named_parameters()}
        gradients = {name: p.grad for name, p in model.named_parameters()}
        source: Source = ModuleSource(before)
        if weights is not None:
            source = FileSource(weights, source, model, new)
        self._check(source)
        check_memory(model)
        buffers = source.buffers(model)
        self._ranks.share([*before.values(), *model.buffers()])
        replaced = materialize(model, self.device, buffers)
        self._buffers = Buffers(model, self.device, buffers)
        # The model keeps those without elements.
        self._parameters = {name: p for name, p in model.named_parameters() if p.numel() > 0}
        self._parts = [Part(name or ROOT, module) for name, module in parts or parts_of(model)]
        self._unit_of = self._assign()
        for parameter in self._parameters.values():
            parameter.grad = None
            take_away(parameter, self.device)
        self._binder = Binder(model, self._parts, self._parameters, self._unit_of, self.device)
        try:
            self._open(example, source, keep)
        except BaseException:
            store = getattr(self, "store", None)
            if store is not None:
                store.__exit__(*sys.exc_info())  # so that other ranks do not wait for this one
            self._give_back()
            self._buffers.restore()
            for name, parameter in self._parameters.items():
                if before[name].device.type != "meta":
                    parameter.data = before[name]
                    parameter.grad = gradients[name]
            for module, name, parameter in replaced:
                setattr(module, name, parameter)
            raise
        for name in self.untouched:
            dtype = self._parameters[name].dtype
            self._parameters[name].data = source.values(name).to(self.device, dtype)
        self._binder.guard()
        self._habits = Habits(model, self)

    def _check(self, source: Source) -> None:
        """The type of all weights, which is that of the recipe, and where they come from."""
        dtype = next(self.model.parameters()).dtype
        recipes = {torch.float32: "fp32", torch.bfloat16: "bf16"}
        for name, parameter in self.model.named_parameters():
            here = parameter.device.type in ("cpu", "meta") or parameter.device == self.device
            if not here or parameter.dtype not in recipes:
                raise lib.ConfigError(
                    f"offload: {name}: {parameter.dtype} on {parameter.device} (give float32 or "
                    "bfloat16 on the CPU, the meta device or that of the store)"
                )
            if parameter.dtype != dtype:
                raise lib.ConfigError(
                    f"offload: {name}: {parameter.dtype}, while others are {dtype} (give one type; "
                    "PEFT keeps it with autocast_adapter_dtype=False)"
                )
            check_source(source, name, parameter)
        recipe = self._options.setdefault("recipe", recipes[dtype])
        if recipe != recipes[dtype]:
            raise lib.ConfigError(
                f"offload: recipe {recipe}: the model's weights are {dtype} (leave recipe out, or "
                "change the model)"
            )
        self.has_masters = dtype == torch.bfloat16

    def _assign(self) -> dict[str, str]:
        """The units of parameters: a shared parameter belongs to the first part that has it."""
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        unit_of: dict[str, str] = {}
        for part in self._parts:
            units = []
            for parameter in part.module.parameters():
                if id(parameter) in names:
                    units.append(unit_of.setdefault(names[id(parameter)], part.name))
            part.units = sorted(set(units), key=lambda unit: (unit != part.name, unit))
        return unit_of

    def _tensors_of(self) -> dict[str, list[str]]:
        """Names of parameters by unit."""
        tensors: dict[str, list[str]] = {}
        for name, unit in self._unit_of.items():
            tensors.setdefault(unit, []).append(name)
        return tensors

    def _open(self, example: Example, source: Source, keep: Collection[str]) -> None:
        recorder = Recorder(self._tensors_of(), self._parameters, source, self.device)
        self._binder.uses = recorder
        for name in keep:
            kept = self._name(name)
            recorder.keep(kept)
            self._binder.kept.add(kept)
        record(self.model, self._binder, recorder, example)
        if self._unused(recorder) and self.model.training:  # it may leave out parts at random
            with evaluated(self.model):
                record(self.model, self._binder, recorder, example)
        order = self._ranks.of_first_if_same(self._order(recorder))
        if not any(use.which == "backward" for use in order):
            raise lib.ConfigError(
                "offload: example: its loss depends on no trained parameter of the model (return the loss "
                "that this model computes)"
            )
        trained = [name for name in self._stored() if self._parameters[name].requires_grad]
        self._numbers = {name: index + 1 for index, name in enumerate(trained)}
        units = self._units({unit for use in order for unit in use.units})
        self.store = Store(units, self._options, order=order, may_leave_out=True)
        self._ranks.join(self.store)
        self.plan: Plan = self.store.plan()
        self.store.load(lambda name, first, out: fill(source, name, first, out))
        self._uses = StoreUses(
            self.model,
            self.store,
            order,
            self._parameters,
            int(self._options.get("accumulate", 1)),
            recorder.begins_without_gradients,
            self._ranks,
            self.device,
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
        uses = [
            replace(use, units=[u for u in use.units if u in here])
            for use in recorder.uses
            if here.intersection(use.units)
        ]
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
                frozen=[name for name in names if name not in self._numbers],
                groups={name: self._numbers[name] for name in names if name in self._numbers},
            )
            for unit, names in tensors.items()
        ]

    # ---- Steps

    def step(
        self,
        lr: float,
        *,
        clip: Optional[float] = None,
        weight_decay: Optional[float] = None,
        gradient_scale: float = 1.0,
    ) -> Optional[StepResult]:
        """Ends the step, after the backward of each of its micro-batches, with an AdamW update.
        Weight decay is that of the options, of matrices alone unless decay_all is set. Gradients
        are divided by `gradient_scale`, the number that losses were multiplied by."""
        decay = self.weight_decay if weight_decay is None else float(weight_decay)
        decays_all = bool(self._options.get("decay_all", False))
        settings = {
            name: (lr, decay if decays_all or self._parameters[name].dim() > 1 else 0.0)
            for name in self._numbers
        }
        return self.update(settings, clip, gradient_scale)

    def update(
        self,
        settings: Mapping[str, tuple[float, float]],
        clip: Optional[float],
        gradient_scale: float = 1.0,
    ) -> Optional[StepResult]:
        """Ends the step with learning rate and weight decay by the name of a parameter; those that
        are not named stay. Nothing happens where no gradient was made since the last step."""
        self._require_open("step")
        if self._uses.mode != "step" or not self._uses.has_gradients():
            self.require_idle("step")
            if self._ranks.shards:
                raise lib.UsageError(
                    "offload: step without a gradient, while other ranks may have one (give every rank "
                    "as many micro-batches)"
                )
            return None
        self._binder.refuse_broken("step")
        for name in self._numbers:
            if not self._parameters[name].requires_grad:
                refuse_other_training(f"step: {name}: requires_grad is off")
        self._binder.unbind()
        self._uses.end_micro_batch()
        self._ranks.require_same_gradients()
        groups = [GroupUpdate(*settings.get(name, (0.0, 0.0))) for name in self._numbers]
        try:
            result = self.store.step(
                0.0, clip=clip, groups=groups, gradient_scale=gradient_scale
            )
        except (lib.UsageError, lib.ConfigError):  # the step is as before
            raise
        except BaseException:
            self._uses.end_step()
            raise
        self._uses.end_step()
        return replace(result, left_out=result.left_out + self._uses.passed_over)

    def zero_grad(self) -> None:
        """Drops gradients since the last step, and what an exception or an interrupt left."""
        if self._uses.has_gradients() or self._binder.is_broken():
            self._binder.discard()

    def discard(self) -> None:
        """Ends the step at any point without an update, as after an exception."""
        self._binder.discard()

    def _require_open(self, call: str) -> None:
        if self.store._handle is None and not self._is_restored:
            raise lib.HandleError(
                f"offload: {call}: the store was closed by itself, and the weights are gone with it (make the "
                "model anew; call restore() in place of store.close() to have them back)"
            )
        if self.store._handle is None:
            raise lib.HandleError(
                f"offload: {call}: restore() has closed the store, and the model has its weights "
                "again (offload the model again and make an optimizer for that, or train it with one "
                "of torch.optim)"
            )

    def require_idle(self, call: str) -> None:
        """Ends a pass without a backward, or drops a forward whose backward did not come or that was cut
        short. Throws within a step."""
        self._require_open(call)
        if self._uses.mode == "step" and self._uses.has_gradients():
            raise lib.UsageError(
                f"offload: {call} within a step (call optimizer.step() before it, or zero_grad() to "
                "drop the step)"
            )
        if self._uses.mode == "step" or self._binder.is_broken():
            self._binder.discard()
        self._binder.unbind()
        self._uses.end_forward()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Forwards without a backward, between steps: as torch.no_grad()."""
        with torch.no_grad():
            yield
        self.require_idle("evaluating")

    # ---- State

    def name_of(self, parameter: torch.Tensor) -> str:
        """The name of a parameter that is in the store; else nothing."""
        name = self._binder.name_of(parameter)
        return name if name in self._unit_of or name in self.kept else ""

    def _stored(self) -> list[str]:
        """Names of what is in the store, in the order of the model."""
        return [name for name in self._parameters if name in self._unit_of or name in self.kept]

    def trained_parameters(self) -> list[nn.Parameter]:
        """The parameters that step() updates, in the order of the model."""
        return [self._parameters[name] for name in self._numbers]

    def updates(self) -> int:
        """How many steps have updated the weights, those before a load() too."""
        self.require_idle("updates")
        return self.store.statistics().updates

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of all trained weights by name, float32."""
        return self.plane("weights")

    def plane(self, plane: str) -> dict[str, torch.Tensor]:
        """Copies of "weights", "exp_avg" or "exp_avg_sq" of all trained parameters by name, float32."""
        self.require_idle("state_dict")
        wanted = {name: (self._parameters[name].shape, torch.float32) for name in self._numbers}
        return self._copies.of(self.store, plane, wanted)

    def weights_of(self, parameters: dict[str, nn.Parameter]) -> dict[str, torch.Tensor]:
        """Copies of the weights of those that are in the store, by the given names, in the model's type."""
        names = {key: self.name_of(parameter) for key, parameter in parameters.items()}
        wanted = {name for name in names.values() if name}
        found = self._frozen(wanted)
        trained = {name: self._parameters[name] for name in wanted - set(found)}
        if trained:
            sizes = {name: (p.shape, p.dtype) for name, p in trained.items()}
            found.update(self._copies.of(self.store, "weights", sizes))
        return {key: found[name] for key, name in names.items() if name}

    def first_of_ranks(self, value: Any) -> Any:
        """What the first of the ranks that share the state gives."""
        return self._ranks.of_first(value)

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Replaces weights by the names of the model; moments and the others stay."""
        self.reload({self._name(name): values for name, values in weights.items()})

    def reload(
        self,
        weights: Tensors,
        exp_avg: Optional[Tensors] = None,
        exp_avg_sq: Optional[Tensors] = None,
        updates: Optional[int] = None,
    ) -> None:
        """Replaces weights by name, and moments and their count of updates where they are given."""
        planes = {"weights": weights, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
        here = self._stored()
        shapes = {name: self._parameters[name].shape for name in here}
        check_planes(planes, shapes, self._numbers if updates else ())
        self.require_idle("load")
        missing = {name for name in here if name not in weights}
        is_loaded = self._is_loaded()
        if missing and not is_loaded:
            raise lib.UsageError(
                "offload: load: an earlier load failed, and the state is lost (call model.load_state_dict() "
                "with all weights, then load_state_dict() of the optimizer; or offload the model again)"
            )
        known = dict(weights)
        if missing:
            known = {**self._frozen(missing), **known}
        if missing - set(known):
            known = {**self.state_dict(), **known}
        if updates is None:
            updates = self.store.statistics().updates if is_loaded else 0
        self._saved.clear()
        if updates == 0:
            self.store.load(fill_of(known))
            return
        first = exp_avg if exp_avg is not None else self.plane("exp_avg")
        second = exp_avg_sq if exp_avg_sq is not None else self.plane("exp_avg_sq")
        self.store.load(
            fill_of(known), exp_avg=fill_of(first), exp_avg_sq=fill_of(second), updates=updates
        )

    def save(self, directory: Union[str, "os.PathLike[str]"]) -> str:
        """Writes a checkpoint of trained weights and moments below the directory; returns its path.

        It is named by the steps since offload(), to which load() adds those of its checkpoint;
        load_state_dict() of the model or the optimizer begins again from 0. A checkpoint that this
        state did not save itself since the last of these calls, or load, is never replaced: that is an
        error before anything changes, for which another directory is the way out."""
        self.require_idle("save")
        above = os.path.realpath(os.fsdecode(lib.path_of(directory, "save")))
        counts = self.store.statistics()
        path = os.path.join(above, f"step-{counts.steps:06d}")
        if self.first_of_ranks(os.path.exists(path) and path not in self._saved):
            raise lib.ConfigError(
                f"offload: save: {path}: it is there already, and this state did not save it since the last "
                "offload() or load (give another directory, such as "
                f"{os.path.join(above, f'from-{counts.updates:06d}')}: steps count from 0 again after "
                "load_state_dict(), and go on after load(path) of a checkpoint)"
            )
        saved = self.store.save(directory)
        self._saved.add(path)
        return saved

    def load(self, checkpoint: Union[str, "os.PathLike[str]"]) -> None:
        """Loads what save() wrote, with its count of steps."""
        self.require_idle("load")
        check_checkpoint(checkpoint)
        frozen = self._frozen() if self._is_loaded() else self._rescued
        if not frozen and len(self._numbers) < len(self._stored()):
            raise lib.UsageError(
                "offload: load: an earlier failure lost the weights that are not trained (offload the "
                "model again, from its files)"
            )
        try:
            self.store.load(fill_of(frozen) if frozen else None, checkpoint)
            self._saved = {os.path.realpath(checkpoint)}
        finally:
            self._rescued = {} if self._is_loaded() else frozen

    def _is_loaded(self) -> bool:
        try:
            self.store.statistics()
        except lib.UsageError:  # a call failed, and the state is lost
            return False
        return True

    def restore(self) -> None:
        """Gives the model its weights back, removes the hooks and closes the store."""
        self.require_idle("restore")
        if not self._is_loaded():
            raise lib.UsageError(
                "offload: restore: an earlier call failed, and the weights are lost (call load() with a "
                "checkpoint, or load_state_dict() of the model with all weights, before; or make the model anew)"
            )
        values = {**self._frozen(), **self.state_dict()}
        self.store._forget_views("restore")  # throws before anything changes
        self._is_restored = True
        self._give_back()
        for name, tensor in values.items():
            self._parameters[name].data = tensor.to(self.device, self._parameters[name].dtype)
        self.store.close()

    def _give_back(self) -> None:
        """Removes what is on the model."""
        self._binder.remove()
        if self._habits is not None:
            self._habits.remove()

    def _name(self, name: str) -> str:
        return self._binder.name_of(self.model.get_parameter(name))

    def _frozen(self, wanted: Optional[set[str]] = None) -> dict[str, torch.Tensor]:
        """Copies of the weights that are not trained, which a pass shows."""
        self.require_idle("reading weights")
        found: dict[str, torch.Tensor] = {}
        names = {
            name
            for name in self._stored()
            if name not in self._numbers and (wanted is None or name in wanted)
        }
        if not names:
            return found
        try:
            with torch.no_grad():
                self._uses.enter_forward()
                for name in names.intersection(self.kept):
                    found[name] = self._copied(self._parameters[name].data)
                self._uses.each_forward(
                    lambda name, weights: found.setdefault(name, self._copied(weights))
                    if name in names and name not in found
                    else None
                )
        except BaseException:
            self._uses.discard()
            raise
        self._uses.end_forward()
        return found

    def _copied(self, weights: torch.Tensor) -> torch.Tensor:
        return self._copies.new(weights.shape, weights.dtype).copy_(weights)


def _betas_of(given: Any) -> tuple[float, float]:
    try:
        first, second = given
        return float(first), float(second)
    except (TypeError, ValueError):
        raise lib.ConfigError(f"options: betas: {given!r} (give two numbers)") from None
