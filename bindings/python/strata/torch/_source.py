# SPDX-License-Identifier: Apache-2.0
"""Where weights come from before they are in a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Mapping, Optional, Protocol, Sequence

import torch
from torch import nn

from .. import _library as lib
from ._copies import copy_alone
from ._renamed import base_of, plain_name, renamed

if TYPE_CHECKING:
    import numpy as np


class Source(Protocol):
    """Weights by the name of a parameter."""

    def values(self, name: str) -> torch.Tensor:
        """The whole tensor, valid until the next call."""

    def buffers(self, model: nn.Module) -> dict[int, torch.Tensor]:
        """Values of buffers that are others than the model's, by the id() of the model's."""


class ModuleSource:
    """The values that the model's parameters had."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def values(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def buffers(self, _model: nn.Module) -> dict[int, torch.Tensor]:
        return {}


class FileSource:
    """Weights and persistent buffers of a Hugging Face directory, read from its safetensors tensor by
    tensor. Adapters of PEFT, which are no part of a name there, and what `new` names have the values of
    `others`."""

    def __init__(
        self, directory: str, others: Source, model: nn.Module, new: Collection[str] = ()
    ) -> None:
        try:
            from safetensors import safe_open
        except ImportError as error:
            raise lib.ConfigError(
                "offload: weights: safetensors is not installed (pip install safetensors)"
            ) from error
        files = sorted(Path(directory).glob("*.safetensors"))
        if not files:
            raise lib.ConfigError(
                f"offload: weights: {directory}: it has no *.safetensors (give a directory that "
                "save_pretrained wrote)"
            )
        self._directory = directory
        self._others = others
        check_shards(Path(directory), [file.name for file in files])
        opened: list[Any] = [_opened(safe_open, file) for file in files]
        keys: dict[str, Any] = {key: file for file in opened for key in file.keys()}
        self._where = {**keys, **renamed(model, keys)}
        all_names = names_of(model)
        self._keys = {names[0]: self._key(names) for names in all_names}
        self._last: tuple[str, Optional[torch.Tensor]] = ("", None)
        self._check_ambiguous()
        self._check_missing(model, [*adapters_of(model), *checked_names(model, new)], all_names)

    def has(self, name: str) -> bool:
        return bool(self._keys[name])

    def check(self, name: str, parameter: nn.Parameter) -> None:
        """Throws where the file's tensor cannot be the parameter's value."""
        key = self._keys[name]
        tensor = self._where[key].get_slice(key)
        if tensor.get_dtype() not in ("F32", "BF16", "F16"):
            raise lib.ConfigError(
                f"offload: {name}: {key} in {self._directory} is {tensor.get_dtype()} (quantized "
                "weights are not trained: give a directory with float32, bfloat16 or float16)"
            )
        self._check_shape(name, parameter)

    def buffers(self, model: nn.Module) -> dict[int, torch.Tensor]:
        found = {}
        for name, buffer in model.named_buffers():
            if self._keys.get(name):
                self._check_shape(name, buffer)
                found[id(buffer)] = self.values(name).to(buffer.dtype, copy=True)
        return found

    def _check_shape(self, name: str, tensor: torch.Tensor) -> None:
        key = self._keys[name]
        shape = tuple(self._where[key].get_slice(key).get_shape())
        if shape != tuple(tensor.shape):
            raise lib.ConfigError(
                f"offload: {name}: shape {shape} in the file, {tuple(tensor.shape)} in the model (give "
                "the directory of this model)"
            )

    def values(self, name: str) -> torch.Tensor:
        if not self._keys[name]:
            return self._others.values(name)
        if self._last[0] != name or self._last[1] is None:
            self._last = ("", None)  # one tensor at a time
            key = self._keys[name]
            self._last = (name, self._where[key].get_tensor(key))
        tensor = self._last[1]
        assert tensor is not None
        return tensor

    def _key(self, names: Sequence[str]) -> str:
        for name in names:
            plain = plain_name(name)
            _, _, inner = plain.partition(".")
            for key in (name, plain, inner, "model." + plain):
                if key in self._where:
                    return key
        return ""

    def _check_ambiguous(self) -> None:
        name_of: dict[str, str] = {}
        for name, key in self._keys.items():
            other = name_of.setdefault(key, name)
            if key and other != name:
                raise lib.ConfigError(
                    f"offload: weights: {self._directory}: {key} may be {other} or {name} (save "
                    "the whole model with save_pretrained, and give that directory)"
                )

    def _check_missing(
        self, model: nn.Module, others: Collection[str], all_names: list[list[str]]
    ) -> None:
        missing = [
            names[0]
            for names in all_names
            if not self._keys[names[0]] and not any(_is_below(name, others) for name in names)
        ]
        if not missing:
            return
        unused = sorted(set(self._where) - set(self._keys.values()))
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        plain = [plain_name(name) for name in missing]
        tied = [key for key in getattr(base_of(model), "_tied_weights_keys", None) or () if key in plain]
        raise lib.ConfigError(
            f"offload: weights: {self._directory}: it has no tensors {', '.join(missing[:8])}{more}"
            + (f"; nothing has the name of its {unused[0]}" if unused else "")
            + (f" (call tie_weights() of the model first if {tied[0]} is shared; " if tied else " (")
            + "give the directory of this model; or load it with from_pretrained() and leave "
            "weights out; new=[...] names parameters or modules whose values are the model's)"
        )


def check_shards(directory: Path, files: Collection[str]) -> None:
    """Throws where the directory's index names files that are not there."""
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        return
    named = set(json.loads(index.read_text()).get("weight_map", {}).values())
    missing = sorted(named.difference(files))
    if missing:
        raise lib.ConfigError(
            f"offload: weights: {index} names {missing[0]}, which is not there; {len(missing)} of "
            f"{len(named)} files are missing (copy the whole directory)"
        )


def _opened(open_file: Any, file: Path) -> Any:
    try:
        return open_file(str(file), "pt")
    except Exception as error:  # SafetensorError is one, as are those of the system
        raise lib.ConfigError(
            f"offload: weights: {file}: it cannot be read: {error} (copy it again)"
        ) from error


def _is_below(name: str, others: Collection[str]) -> bool:
    return any(name == other or name.startswith(other + ".") for other in others)


def names_of(model: nn.Module) -> list[list[str]]:
    """All names of each parameter and persistent buffer, the first one first."""
    found: dict[int, list[str]] = {}
    persistent = {id(each) for each in model.state_dict(keep_vars=True).values()}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if id(buffer) in persistent:
            found.setdefault(id(buffer), []).append(name)
    return list(found.values())


def adapters_of(model: nn.Module) -> list[str]:
    """Modules and parameters that PEFT has added."""
    found = ["prompt_encoder"] if hasattr(model, "peft_config") else []
    for path, module in model.named_modules():
        for kind in ("adapter_layer_names", "other_param_names"):
            found += [f"{path}.{name}" if path else name for name in getattr(module, kind, ())]
    return found


def checked_names(model: nn.Module, new: Collection[str]) -> Collection[str]:
    names = [name for every in names_of(model) for name in every]
    for each in [new] if isinstance(new, str) else new:
        if isinstance(new, str) or not any(_is_below(name, [each]) for name in names):
            raise lib.ConfigError(
                f"offload: new: {each}: no parameter, buffer or module of the model (give a list of names)"
            )
    return new


def check_kept(model: nn.Module, keep: Collection[str]) -> None:
    """Throws for a name that no parameter has."""
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    for each in keep:
        if each not in names:
            raise lib.ConfigError(
                f"offload: keep: {each}: no parameter of the model (give names of model.named_parameters())"
            )


def fill(source: Source, name: str, first: int, out: "np.ndarray") -> None:
    """Fills out[n] with the elements from `first` on, in float32."""
    values = source.values(name).reshape(-1)[first : first + out.size]
    copy_alone(torch.from_numpy(out), values)


def check_source(source: Source, name: str, parameter: nn.Parameter) -> None:
    """Throws where a parameter has no value, or one of another shape."""
    if isinstance(source, FileSource) and source.has(name):
        source.check(name, parameter)
    elif parameter.device.type == "meta":
        way_out = "give the directory that has it as weights, or a value"
        if isinstance(source, FileSource):
            way_out = (
                "the directory lacks it: call to_empty(device='cpu') of its module and give it values, as "
                "reset_lora_parameters(adapter, True) of PEFT's LoRA layers does"
            )
        raise lib.ConfigError(
            f"offload: {name}: it is on the meta device and has no value ({way_out})"
        )


Replaced = list[tuple[nn.Module, str, nn.Parameter]]


def materialize(model: nn.Module, device: torch.device, buffers: Collection[int]) -> Replaced:
    """Replaces parameters on the meta device by ones on the device; they get their values later, and
    stay shared. Returns those that were replaced. buffers: the id() of those that have values."""
    for name, buffer in model.named_buffers():
        if buffer.device.type == "meta" and id(buffer) not in buffers:
            raise lib.ConfigError(
                f"offload: {name}: the buffer is on the meta device (make the model with "
                "accelerate.init_empty_weights(), which leaves buffers alone)"
            )
    made: dict[int, nn.Parameter] = {}
    replaced: Replaced = []
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.device.type == "meta":
                nan = torch.full((), float("nan"), dtype=parameter.dtype, device=device)
                nan = nan.expand(parameter.shape)
                new = made.setdefault(
                    id(parameter), nn.Parameter(nan, requires_grad=parameter.requires_grad)
                )
                setattr(module, name, new)
                replaced.append((module, name, parameter))
    return replaced
