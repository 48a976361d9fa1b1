# SPDX-License-Identifier: Apache-2.0
"""Where weights come from before they are in a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Mapping, Optional, Protocol

import torch
from torch import nn

from .. import _library as lib

if TYPE_CHECKING:
    import numpy as np


class Source(Protocol):
    """Weights by the name of a parameter."""

    def values(self, name: str) -> torch.Tensor:
        """The whole tensor, valid until the next call."""


class ModuleSource:
    """The values that the model's parameters had."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def values(self, name: str) -> torch.Tensor:
        return self.tensors[name]


class FileSource:
    """Weights of a Hugging Face directory, read from its safetensors tensor by tensor; what it does
    not have is taken from `others`. Adapters of PEFT are no part of a name there."""

    def __init__(self, directory: str, others: Source, names: Collection[str]) -> None:
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
        self._others = others
        opened: list[Any] = [safe_open(str(file), "pt") for file in files]
        self._where: dict[str, Any] = {key: file for file in opened for key in file.keys()}
        self._keys = {name: self._key(name) for name in names}
        self._last: tuple[str, Optional[torch.Tensor]] = ("", None)

    def has(self, name: str) -> bool:
        return bool(self._keys[name])

    def shape(self, name: str) -> tuple[int, ...]:
        key = self._keys[name]
        return tuple(self._where[key].get_slice(key).get_shape())

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

    def _key(self, name: str) -> str:
        plain = name.replace(".base_layer.", ".").removeprefix("base_model.model.")
        _, _, inner = plain.partition(".")
        for key in (name, plain, inner, "model." + plain):
            if key in self._where:
                return key
        return ""


def fill(source: Source, name: str, first: int, out: "np.ndarray") -> None:
    """Fills out[n] with the elements from `first` on, in float32."""
    values = source.values(name).reshape(-1)[first : first + out.size]
    torch.from_numpy(out).copy_(values)


def check_source(source: Source, name: str, parameter: nn.Parameter) -> None:
    """Throws where a parameter has no value, or one of another shape."""
    if isinstance(source, FileSource) and source.has(name):
        if source.shape(name) != tuple(parameter.shape):
            raise lib.ConfigError(
                f"offload: {name}: shape {source.shape(name)} in the file, {tuple(parameter.shape)} "
                "in the model (give the directory of this model)"
            )
    elif parameter.device.type == "meta":
        raise lib.ConfigError(
            f"offload: {name}: it is on the meta device and has no value (give the directory that "
            "has it as weights, or a value)"
        )


def materialize(model: nn.Module, device: torch.device) -> None:
    """Replaces parameters on the meta device by ones on the device; they get their values later, and
    stay shared."""
    made: dict[int, nn.Parameter] = {}
    for path, module in model.named_modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.device.type == "meta":
                nan = torch.full((), float("nan"), dtype=parameter.dtype, device=device)
                nan = nan.expand(parameter.shape)
                new = made.setdefault(
                    id(parameter), nn.Parameter(nan, requires_grad=parameter.requires_grad)
                )
                setattr(module, name, new)
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.device.type == "meta":
                raise lib.ConfigError(
                    f"offload: {path}.{name}: the buffer is on the meta device (make the model with "
                    "accelerate.init_empty_weights(), which leaves buffers alone)"
                )
