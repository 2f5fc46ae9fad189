# SPDX-License-Identifier: Apache-2.0
"""The layouts that the adapter arms for, each as an engine of the rig."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig import make_models
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
    faults_in: str = ""  # a list that it shares with another layout

    @property
    def standing_gaps(self) -> list[str]:
        return GAPS[self.name]

    def faults(self) -> list[dict[str, Any]]:
        """The layout's list of faults; fixed before what finds them."""
        path = HERE / f"faults_{self.faults_in or self.name}.toml"
        faults = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
        return [fault for fault in faults if fault.get("only", self.name) == self.name]

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
DRAFTS = {"num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
KEEP_ASYNC = {"KVGUARD_RIG_ASYNC": "1"}
NGRAM = Layout(
    "ngram",
    "tiny_llama",
    {"speculative_config": {"method": "ngram"} | DRAFTS},
    faults_in="drafts",
)
NGRAM_ASYNC = Layout(
    "ngram-async",
    "tiny_llama",
    {"speculative_config": {"method": "ngram_gpu"} | DRAFTS, "async_scheduling": True},
    KEEP_ASYNC,
    faults_in="drafts",
)
# The three at once: columns leave a window by what was accepted, and frees wait for it.
WINDOWS_NGRAM_ASYNC = Layout(
    "windows-ngram-async",
    "tiny_gemma3",
    WINDOWS.options | NGRAM_ASYNC.options,
    KEEP_ASYNC,
)
EAGLE_DRAFTS = {
    "method": "eagle",
    "num_speculative_tokens": 3,
    "draft_tensor_parallel_size": 1,
    "model": str(make_models.build("tiny_eagle")),
}
EAGLE = Layout("eagle", "tiny_llama", {"speculative_config": EAGLE_DRAFTS})
EAGLE_ASYNC = Layout(
    "eagle-async",
    "tiny_llama",
    {"speculative_config": EAGLE_DRAFTS, "async_scheduling": True},
    KEEP_ASYNC,
    faults_in="eagle",
)
ASYNC = Layout("async", "tiny_llama", {"async_scheduling": True}, KEEP_ASYNC)
# The reference kernel for latents takes blocks of 16 and bfloat16; vLLM gives it neither chunked
# prefill nor prefix caching.
MLA = Layout(
    "mla",
    "tiny_dsv2",
    {"dtype": "bfloat16", "block_size": 16, "num_gpu_blocks_override": 40},
)
POOLING = Layout("pooling", "tiny_llama", {"runner": "pooling", "convert": "embed"})
