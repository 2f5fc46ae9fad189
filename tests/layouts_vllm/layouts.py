# SPDX-License-Identifier: Apache-2.0
"""The layouts that the adapter arms for, each as an engine of the rig."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.engine import Engine

HERE = Path(__file__).parent
GAPS: dict[str, list[str]] = json.loads((HERE / "standing_gaps.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Layout:
    """A model and options of an engine."""

    name: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def standing_gaps(self) -> list[str]:
        return GAPS[self.name]

    def faults(self) -> list[dict[str, Any]]:
        """The layout's list of faults; fixed before what finds them."""
        path = HERE / f"faults_{self.name}.toml"
        return tomllib.loads(path.read_text(encoding="utf-8"))["fault"]

    def engine(self, worker_cls: str, guard: dict[str, Any], **environ: str) -> Engine:
        """A fresh engine; `guard` is its kv_guard_config."""
        return Engine(
            self.model,
            worker_cls=worker_cls,
            additional_config={"kv_guard_config": guard},
            environ=self.environ | environ,
            **self.options,
        )


# 35 blocks for up to 8 requests of up to 256 tokens: preemptions come by themselves, and blocks
# behind a window are soon another's.
WINDOWS = Layout("windows", "tiny_gemma3", {"num_gpu_blocks_override": 36})
