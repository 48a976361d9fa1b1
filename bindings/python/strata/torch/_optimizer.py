# SPDX-License-Identifier: Apache-2.0
"""The store's AdamW in the shape of torch.optim."""

from __future__ import annotations

import math
import os
import weakref
from typing import Any, Callable, Iterable, Optional, Union

import torch
from torch import nn

from .. import _library as lib
from .._units import StepResult
from ._offload import Offloaded


class Optimizer(torch.optim.Optimizer):
    """AdamW over the store of a model, for training loops and learning rate schedulers of PyTorch.

        optimizer = strata.torch.Optimizer(state, lr=1e-4, clip=1.0)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
        for batch in batches:
            loss_of(model, batch).backward()
            optimizer.step()
            scheduler.step()

    params: parameters, with their names or without, or groups of them, with "lr" and "weight_decay" by
        group; without it all that are trained. As in PyTorch, weight decay is for all parameters of a group.
    clip: the largest norm of all gradients.
    checkpoints: a directory. state_dict() then writes a checkpoint of the store there, which
        replaces no other, and has its path; load_state_dict() finds it there also after a move.
        Without it, state_dict() has copies of all moments, as that of torch.optim.AdamW.

    betas, eps and, where it is not given here, weight_decay are options of offload().
    step(gradient_scale=2.0**16) is for gradients of losses that were multiplied by that number, as a
    GradScaler's are. result: what the last step() did; result.left_out counts the forwards and backwards of
    parts that the example has and the step did not do, whose gradients were zero.
    """

    def __init__(
        self,
        state: Offloaded,
        params: Optional[Iterable[Any]] = None,
        *,
        lr: float = 1e-3,
        weight_decay: Optional[float] = None,
        clip: Optional[float] = None,
        checkpoints: Optional[Union[str, "os.PathLike[str]"]] = None,
    ) -> None:
        self._store_of = state
        self._is_open = True  # for groups
        self._clip_once: Optional[float] = None
        self._norm: Optional[torch.Tensor] = None
        self.clip = clip
        # A directory that is relative is so to where the program is now.
        self.checkpoints = None if checkpoints is None else os.path.abspath(checkpoints)
        self.result: Optional[StepResult] = None
        given = params if params is not None else state.trained_parameters()
        decay = state.weight_decay if weight_decay is None else weight_decay
        for name, value in (("lr", lr), ("weight_decay", decay), ("clip", 0.0 if clip is None else clip)):
            is_number = isinstance(value, (int, float, torch.Tensor)) and value >= 0
            lib.require(is_number, f"Optimizer: {name}", value, "a number of at least 0")
        defaults = {"lr": lr, "weight_decay": decay, "betas": state.betas, "eps": state.eps}
        super().__init__(given, defaults)
        self._is_open = False
        self._refuse_second()

    def _refuse_second(self) -> None:
        """Throws for optimizers that share a model's parameters out: a step is that of all."""
        other = self._store_of.optimizer() if self._store_of.optimizer is not None else None
        if other is not None and set(other._parameters()) != set(self._parameters()):
            raise lib.UsageError(
                "Optimizer: the model has another one, for other parameters (a step is that of all "
                "parameters: make one optimizer with groups, and delete the other before)"
            )
        self._store_of.optimizer = weakref.ref(self)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only while the optimizer is made: a step is that of all groups."""
        if not self._is_open:
            raise lib.UsageError(
                "Optimizer: another group of parameters (give all groups when it is made)"
            )
        params = param_group["params"]
        params = [params] if isinstance(params, torch.Tensor) else list(params)
        trained = []
        for given in params:
            parameter = given[1] if isinstance(given, tuple) else given  # of named_parameters()
            if self._store_of.name_of(parameter):
                trained.append(parameter)
            elif parameter.requires_grad:
                raise lib.ConfigError(
                    "Optimizer: a parameter that is not in the store (it is none of the offloaded "
                    "model, or the example does not use it)"
                )
        super().add_param_group(
            {**param_group, "params": trained, "param_names": self._names_of(trained)}
        )

    def step(
        self, closure: Optional[Callable[[], Any]] = None, *, gradient_scale: float = 1.0
    ) -> Any:
        """Updates the weights with the gradients since the last step, if there are any. They are
        divided by `gradient_scale`, the number that losses were multiplied by."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        settings = {}
        for group in self.param_groups:
            self._check_group(group)
            for parameter in group["params"]:
                name = self._store_of.name_of(parameter)
                settings[name] = (float(group["lr"]), float(group["weight_decay"]))
        clip = self.clip if self._clip_once is None else self._clip_once
        result = self._store_of.update(settings, clip, gradient_scale)
        self._clip_once = None
        self.result = result or self.result
        if result is not None and self._norm is not None:
            self._norm.fill_(result.grad_norm)
        return loss

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Clips in the next step(); an infinite norm clips as the option does. Returns a scalar that
        step() sets to the norm of all gradients; it is NaN until then."""
        lib.require(max_norm > 0, "clip_grad_norm_: max_norm", max_norm, "a number above 0")
        if math.isfinite(max_norm):
            self._clip_once = float(max_norm)
        self._norm = torch.full((), math.nan)
        return self._norm

    def attach(self, trainer: Any) -> None:
        """Lets a Trainer of Transformers, or an Accelerator, clip gradients in step(), and leave
        them to the store's ranks. Call it before the training and before prepare(); without it they
        read param.grad, which is an error."""

        def clip(_parameters: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
            if norm_type != 2:
                raise lib.ConfigError(f"clip_grad_norm_: norm {norm_type} (give 2)")
            return self.clip_grad_norm_(max_norm)

        accelerator = getattr(trainer, "accelerator", trainer)
        accelerator.clip_grad_norm_ = clip
        self._leave_as_it_is(accelerator)
        if hasattr(trainer, "_mixed_mesh_grads"):
            trainer._mixed_mesh_grads = False  # which it would look at gradients for

    def _leave_as_it_is(self, accelerator: Any) -> None:
        """Keeps the accelerator from wrapping the model in DistributedDataParallel and the like."""
        prepare_model = accelerator.prepare_model

        def prepare(model: nn.Module, *arguments: Any, **keywords: Any) -> Any:
            if model is self._store_of.model:
                return prepare_model(model, *arguments[:1], **{**keywords, "evaluation_mode": True})
            return prepare_model(model, *arguments, **keywords)

        accelerator.prepare_model = prepare

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients since the last step with their clip, and what an exception left."""
        self._clip_once = None
        self._store_of.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Groups, and copies of all moments, with bfloat16 weights also of their float32 masters; or
        with `checkpoints` the path of a checkpoint, which has all of these."""
        packed: dict[str, Any] = super().state_dict()
        updates = self._store_of.updates()
        if updates == 0:
            return packed
        if self.checkpoints is not None:
            path = os.path.abspath(self._store_of.save(self._fresh_directory()))
            below = os.path.relpath(path, self.checkpoints)
            return {**packed, "strata_checkpoint": path, "strata_checkpoint_below": below}
        moments, second = self._store_of.plane("exp_avg"), self._store_of.plane("exp_avg_sq")
        masters = self._store_of.state_dict() if self._store_of.has_masters else {}
        for index, parameter in enumerate(self._parameters()):
            name = self._store_of.name_of(parameter)
            of: dict[str, Any] = {"step": torch.tensor(float(updates))}
            planes = {"exp_avg": moments, "exp_avg_sq": second, "master": masters}
            for key, plane in planes.items():
                if name in plane:
                    of[key] = plane[name]
            packed["state"][index] = of
        return packed

    def _fresh_directory(self) -> str:
        """`checkpoints`, or one below it where that has a checkpoint of this step already, which an
        earlier state_dict() may name."""
        assert self.checkpoints is not None
        step = self._store_of.store.statistics().steps
        above = os.path.abspath(self.checkpoints)
        fresh, number = above, 1
        while os.path.exists(os.path.join(fresh, f"step-{step:06d}")):
            number += 1
            fresh = os.path.join(above, f"again-{number}")
        directory: str = self._store_of.first_of_ranks(fresh)
        return directory

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what state_dict() gave, or the state of torch.optim.AdamW. A state that cannot be
        loaded is refused before anything changes. What state_dict() gave may have parameters that are
        frozen now; they are left out. A state whose groups have "param_names" is loaded by name, any other
        by the order of parameters. Load the model's own state_dict() before it: with bfloat16 weights
        that would replace the exact masters, which this one has, by rounded ones."""
        groups, state = self._matched(state_dict)
        self._check_groups(groups)
        if "strata_checkpoint" in state_dict:
            if _sizes_of(groups) != _sizes_of(state_dict["param_groups"]):
                raise lib.ConfigError(
                    "Optimizer.load_state_dict: a checkpoint of the store with parameters that are "
                    "frozen now (load what state_dict() of an optimizer without checkpoints= gave)"
                )
            self._store_of.load(self._find_checkpoint(state_dict))
        else:
            self._load_planes(state)
        super().load_state_dict({"state": {}, "param_groups": groups})

    def _matched(self, given: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[int, Any]]:
        """The groups and state of a state_dict(), with the parameters of these groups in their order where
        it has names."""
        groups: list[dict[str, Any]] = given["param_groups"]
        state: dict[int, Any] = given["state"]
        names = _names_by_index(given)
        if not names or len(groups) != len(self.param_groups):
            return groups, state
        there: list[int] = []  # indices in the state by those of these groups
        matched = []
        for number, (group, own) in enumerate(zip(groups, self.param_groups)):
            indices = {names.get(index): index for index in group["params"]}
            known = self._names_of(own["params"])
            for name in known:
                if name not in indices:
                    raise lib.ConfigError(
                        f"Optimizer.load_state_dict: {name}: group {number} of the state does not have it, "
                        f"but {_some(indices)} (make the optimizer with the same groups; parameters that "
                        "state_dict() has may be frozen, but none may be new; a state without "
                        '"param_names" is loaded by the order of parameters)'
                    )
            first = len(there)
            there += [indices[name] for name in known]
            params = list(range(first, len(there)))
            matched.append({**group, "params": params, "param_names": known})
        return matched, {new: state[old] for new, old in enumerate(there) if old in state}

    def _load_planes(self, state: dict[int, Any]) -> None:
        if not state and self._store_of.updates() == 0:
            return
        planes: dict[str, dict[str, torch.Tensor]] = {"exp_avg": {}, "exp_avg_sq": {}, "master": {}}
        for index, parameter in enumerate(self._parameters()):
            of = state.get(index, {})
            _refuse_other(sorted(set(of) - {"step", *planes}), f"moments of {index}")
            for key, plane in planes.items():
                if key in of:
                    plane[self._store_of.name_of(parameter)] = of[key]
        counts = sorted({int(of["step"]) for of in state.values() if "step" in of})
        if len(counts) > 1:
            raise lib.ConfigError(
                f"Optimizer.load_state_dict: some parameters were updated {counts[0]} times and others up to "
                f"{counts[-1]}, but a store counts the updates of all together (give all states one "
                '"step", with which moments are corrected, or load the weights alone)'
            )
        updates = counts[0] if counts else 0
        self._store_of.reload(planes["master"], planes["exp_avg"], planes["exp_avg_sq"], updates)

    def _check_groups(self, groups: list[dict[str, Any]]) -> None:
        given, own = _sizes_of(groups), _sizes_of(self.param_groups)
        if given != own:
            raise lib.ConfigError(
                f"Optimizer.load_state_dict: groups of {given} parameters are given, these are of "
                f"{own} (make the optimizer with the same groups; parameters that state_dict() has may "
                "be frozen, but none may be new)"
            )
        for group in groups:
            _refuse_other([] if "betas" in group else ["no betas"], "a group")
            self._check_group(group)

    def _check_group(self, group: dict[str, Any]) -> None:
        others = {"amsgrad": True, "maximize": True, "decoupled_weight_decay": False}
        _refuse_other([key for key, value in others.items() if group.get(key) is value], "a group")
        betas, eps = self._store_of.betas, self._store_of.eps
        if tuple(group.get("betas", betas)) != betas or group.get("eps", eps) != eps:
            raise lib.ConfigError(
                f"Optimizer: a group has betas {group.get('betas')} and eps {group.get('eps')}, "
                f"the store {betas} and {eps} (they are options of offload(); schedulers have "
                "cycle_momentum=False)"
            )

    def _find_checkpoint(self, state_dict: dict[str, Any]) -> str:
        """Where it was, or at its place below `checkpoints`."""
        path: str = state_dict["strata_checkpoint"]
        if os.path.exists(path):
            return path
        if self.checkpoints is None:
            raise lib.ConfigError(
                f"Optimizer.load_state_dict: checkpoint {path}: it does not exist (make the "
                "optimizer with checkpoints=DIR, where DIR is the directory that has it now)"
            )
        below = state_dict.get("strata_checkpoint_below", os.path.basename(path))
        moved = os.path.join(os.path.abspath(self.checkpoints), below)
        if not os.path.exists(moved):
            raise lib.ConfigError(
                f"Optimizer.load_state_dict: checkpoint {path}: it does not exist, nor does "
                f"{moved} (give the directory that has it now as checkpoints=DIR)"
            )
        return moved

    def _names_of(self, parameters: Iterable[nn.Parameter]) -> list[str]:
        return [self._store_of.name_of(parameter) for parameter in parameters]

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]


def _sizes_of(groups: list[dict[str, Any]]) -> list[int]:
    return [len(group["params"]) for group in groups]


def _names_by_index(given: dict[str, Any]) -> dict[int, str]:
    """Names of parameters in a state_dict() by their indices; none where it lacks some."""
    groups = given["param_groups"]
    names = given.get("strata_names")  # of all groups, as older versions wrote them
    if names is None:
        names = [name for group in groups for name in group.get("param_names", ())]
    indices = [index for group in groups for index in group["params"]]
    return dict(zip(indices, names)) if len(names) == len(indices) else {}


def _some(names: Iterable[Any]) -> str:
    """The first of them, for a message."""
    known = [str(name) for name in names]
    return ", ".join(known[:3]) + (", ..." if len(known) > 3 else "") or "none"


def _refuse_other(signs: list[str], where: str) -> None:
    """Throws where there are signs of another algorithm."""
    if signs:
        raise lib.ConfigError(
            f"Optimizer: {where} with {', '.join(signs)}: of another algorithm (the store has "
            "torch.optim.AdamW's, without amsgrad and maximize; give a state of that, or train on "
            "without the old moments)"
        )
