# SPDX-License-Identifier: Apache-2.0
"""Options and plans."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Mapping

from ._library import PlanStruct

Options = Mapping[str, Any]
"""Options of `strata train` by name, such as {"host_memory": "24GiB", "nvme": ["/mnt/a"]}."""


@dataclass(frozen=True)
class Plan:
    """A plan that was verified: as text, and as the object of `strata plan --json`."""

    text: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return self.text


def options_text(options: Options | None, **more: Any) -> bytes:
    """The options as JSON; paths become texts."""
    given = {key: value for key, value in {**(options or {}), **more}.items() if value is not None}
    return json.dumps(given, default=os.fspath).encode()


def plan_of(struct: PlanStruct) -> Plan:
    return Plan(struct.text.decode(errors="replace"), json.loads(struct.json.decode()))
