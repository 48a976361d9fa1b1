# SPDX-License-Identifier: Apache-2.0
"""Tensors of a Hugging Face directory under the names that the model has, where Transformers saves
it under others, or in several tensors what is one parameter, such as the experts of a layer."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any, Callable, Mapping, Union

import torch
from torch import nn

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


class _Other:
    """A tensor of a file under another name."""

    def __init__(self, file: Any, key: str) -> None:
        self._file = file
        self._key = key

    def get_slice(self, _name: str) -> Any:
        return self._file.get_slice(self._key)

    def get_tensor(self, _name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._file.get_tensor(self._key)
        return tensor


class _Made:
    """A tensor that is made of some in files. They are read whole for it."""

    def __init__(self, make: Callable[[], Mapping[str, Any]], shape: torch.Size, dtype: str) -> None:
        self._make = make
        self._shape = shape
        self._dtype = dtype

    def get_slice(self, _name: str) -> "_Made":
        return self

    def get_shape(self) -> torch.Size:
        return self._shape

    def get_dtype(self) -> str:
        return self._dtype

    def get_tensor(self, name: str) -> torch.Tensor:
        return _single(self._make()[name])


Found = dict[str, Union[_Other, _Made]]


def renamed(model: nn.Module, files: Mapping[str, Any]) -> Found:
    """What `files` has under other names, by the names of the model's tensors; of models that
    Transformers knows. files: by the names there."""
    base: Any = base_of(model)
    if not hasattr(base, "base_model_prefix"):  # it is none of Transformers
        return {}
    tensors = [*base.named_parameters(), *base.named_buffers()]
    names = dict.fromkeys((plain_name(name) for name, _ in tensors), True)
    try:
        from transformers import conversion_mapping, core_model_loading
    except ImportError:
        return _renamed_by_4(base, names, files)
    transforms = conversion_mapping.get_model_conversion_mapping(base)
    converters = [t for t in transforms if isinstance(t, core_model_loading.WeightConverter)]
    renamings = [t for t in transforms if isinstance(t, core_model_loading.WeightRenaming)]
    converter_of = {pattern: each for each in converters for pattern in each.source_patterns}
    found: Found = {}
    parts: dict[str, list[tuple[str, str]]] = {}  # by a name of the model: patterns and keys
    for key in sorted(files, key=core_model_loading.dot_natural_key):
        name, pattern = core_model_loading.rename_source_key(
            key, renamings, converters, base.base_model_prefix, names
        )
        if pattern is not None:
            parts.setdefault(name, []).append((pattern, key))
        elif name != key and name in names and name not in files:
            found[name] = _Other(files[key], key)
    for name, keys in parts.items():
        found.update(_made(base, converter_of[keys[0][0]], name, keys, files))
    return found


def _renamed_by_4(model: Any, names: Mapping[str, bool], files: Mapping[str, Any]) -> Found:
    """Transformers 4 has a table of patterns in the class of a model."""
    found: Found = {}
    table = getattr(model, "_checkpoint_conversion_mapping", {})
    for key, file in files.items():
        for pattern, instead in table.items():
            name, count = re.subn(pattern, instead, key)
            if count and name in names and name not in files:
                found[name] = _Other(file, key)
                break
    return found


def base_of(model: nn.Module) -> nn.Module:
    """The model without what PEFT has put around it."""
    base: nn.Module = getattr(model, "get_base_model", lambda: model)()
    return base


def plain_name(name: str) -> str:
    """The name of a parameter without what PEFT has put around its module."""
    plain = name.replace(".base_layer.", ".").replace(".original_module.", ".")
    return plain.removeprefix("base_model.model.")


def _made(
    model: Any,
    converter: Any,
    name: str,
    keys: list[tuple[str, str]],
    files: Mapping[str, Any],
) -> Found:
    """The tensors that are made of those with these keys. Their shapes are found by tensors without
    values."""

    def make(read: Callable[[str], torch.Tensor]) -> Mapping[str, Any]:
        own = deepcopy(converter)
        for pattern, key in keys:
            own.add_tensor(name, key, pattern, lambda key=key: read(key))
        made: Mapping[str, Any] = own.convert(name, model=model, config=model.config)
        return made

    slices = {key: files[key].get_slice(key) for _, key in keys}
    dtypes = {each.get_dtype() for each in slices.values()}
    dtype = next((each for each in dtypes if each not in _DTYPES), min(dtypes))

    def empty(key: str) -> torch.Tensor:
        shape = slices[key].get_shape()
        return torch.empty(shape, dtype=_DTYPES.get(dtype), device="meta")

    return {
        target: _Made(
            lambda: make(lambda key: files[key].get_tensor(key)), _single(values).shape, dtype
        )
        for target, values in make(empty).items()
    }


def _single(values: Any) -> torch.Tensor:
    tensor: torch.Tensor = values[0] if isinstance(values, list) else values
    return tensor
