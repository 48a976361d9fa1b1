# SPDX-License-Identifier: Apache-2.0
"""Options and plans."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Mapping

from ._library import ConfigError, PlanStruct, require

Options = Mapping[str, Any]
"""Options of `strata train` by name, such as {"host_memory": "24GiB", "nvme": ["/mnt/a"]}."""


@dataclass(frozen=True, repr=False)
class Plan:
    """A plan that was verified: as text, and as the object of `strata plan --json`."""

    text: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__  # what a notebook shows


def options_text(options: Options | None, **more: Any) -> bytes:
    """The options as JSON; paths become texts."""
    require(isinstance(options or {}, Mapping), "options", options, "values by name")
    given = {key: value for key, value in {**(options or {}), **more}.items() if value is not None}
    return b"{%s}" % b", ".join(_member(name, value) for name, value in given.items())


def _member(name: str, value: Any) -> bytes:
    try:
        return f"{json.dumps(str(name))}: {json.dumps(value, default=plain)}".encode()
    except (TypeError, ValueError):
        raise ConfigError(f"options: {name}: {value!r} (give texts, numbers and lists)") from None


def plain(value: Any) -> Any:
    """For JSON: numbers and arrays of NumPy, and paths."""
    return value.tolist() if hasattr(value, "tolist") else os.fspath(value)


def plan_of(struct: PlanStruct) -> Plan:
    return Plan(struct.text.decode(errors="replace"), json.loads(struct.json.decode()))
