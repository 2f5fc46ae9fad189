# SPDX-License-Identifier: Apache-2.0
"""Drives the real slot kernel of vLLM's Model Runner V2 with a legal schedule, guarded.

    python tests/parts/drive.py [--seed N] [--steps N]

Runs in the rig's environment, with any vLLM's sources in front on PYTHONPATH, and prints a JSON
line for each case: what the guard says of every table and slot that BlockTables made. Nothing of
the kernel's own formula is repeated here.
"""

from __future__ import annotations

import argparse
import inspect
import json
import random
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from rig import environment, triton_interp  # noqa: E402,F401  before anything imports vllm

environment.activate()

import torch  # noqa: E402
import vllm.v1.worker.cpu.shm  # noqa: E402,F401  puts host memory where the kernels want a device's
from kvguard import _core  # noqa: E402
from vllm.v1.worker.gpu.block_table import BlockTables  # noqa: E402

ROWS, TOKENS, MODEL_LEN, BLOCKS = 8, 256, 1024, 4000
SPLITS = "kernel_block_sizes" in inspect.signature(BlockTables.__init__).parameters


@dataclass
class Case:
    """A layout: sizes in tokens of one rank. sharded: for each group, whether ranks share it."""

    sizes: list[int]
    ranks: int = 1
    rank: int = 0
    interleave: int = 1
    sharded: list[bool] = field(default_factory=list)
    kernel_sizes: list[int] = field(default_factory=list)  # where this vLLM splits blocks

    def __post_init__(self) -> None:
        self.sharded = self.sharded or [self.ranks > 1] * len(self.sizes)
        self.kernel_sizes = self.kernel_sizes or list(self.sizes)

    def span(self, group: int) -> int:
        """Tokens of a request that one column of the group stands for."""
        return self.sizes[group] * (self.ranks if self.sharded[group] else 1)

    def tables(self) -> BlockTables:
        """The kernel's own object, as its runner makes it."""
        known: dict[str, Any] = {}
        if SPLITS:
            known["kernel_block_sizes"] = self.kernel_sizes
        elif not all(self.sharded):
            known["dcp_sharded"] = self.sharded
        return BlockTables(
            block_sizes=self.sizes,
            max_num_reqs=ROWS,
            max_num_batched_tokens=TOKENS,
            max_num_blocks_per_group=[
                -(-MODEL_LEN // self.span(g)) for g in range(len(self.sizes))
            ],
            device=torch.device("cpu"),
            cp_size=self.ranks,
            cp_rank=self.rank,
            cp_interleave=self.interleave,
            **known,
        )

    def geometry(self) -> dict[str, Any]:
        """What the guard is told."""
        groups = []
        for size, kernel, sharded in zip(self.sizes, self.kernel_sizes, self.sharded, strict=True):
            split = SPLITS and kernel != size
            replicated = _core.GROUP_REPLICATED if self.ranks > 1 and not sharded else 0
            groups.append(
                {
                    "kind": "full",
                    "block_size": size,
                    "kernel_block_size": kernel,
                    "table_unit": "kernel-block" if split else "block",
                    "flags": _core.GROUP_PAD_ROWS_NULL | replicated,
                    "shard_formula": int(SPLITS),
                }
            )
        return {
            "engine": "vllm",
            "engine_version": "0.28" if SPLITS else "0.29 or later",
            "pools": [{"num_blocks": BLOCKS, "null_block": 0, "kind": "pages"}],
            "groups": groups,
            "max_rows": ROWS,
            "max_tokens": TOKENS,
            "max_model_len": MODEL_LEN,
            "rank": self.rank,
            "num_ranks": self.ranks,
            "dcp_rank": self.rank,
            "dcp_size": self.ranks,
            "interleave": self.interleave,
        }


def array(tensor: torch.Tensor) -> tuple[int, int, int]:
    kind = _core.I64 if tensor.dtype == torch.int64 else _core.I32
    return (tensor.data_ptr(), tensor.numel(), kind)


@dataclass
class Request:
    key: int
    blocks: list[list[int]]
    computed: int = 0


class Engine:
    """A scheduler and a runner's input batch, as small as they can be; requests come and go."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.random = random.Random(seed)
        self.kernel = case.tables()
        self.guard = _core.Guard(case.geometry(), {"action": "log"})
        self.free = list(range(1, BLOCKS))
        self.random.shuffle(self.free)
        self.rows: dict[int, Request] = {}
        self.step_number = 0
        self.keys = 0

    def step(self) -> None:
        self.step_number += 1
        events: list[dict[str, Any]] = []
        for row, request in list(self.rows.items()):
            if self.random.random() < 0.12 or request.computed > MODEL_LEN - 100:
                events.append({"kind": "finish", "request": request.key})
                for blocks in request.blocks:
                    self.free += blocks
                del self.rows[row]
        new = [r for r in range(ROWS) if r not in self.rows and self.random.random() < 0.6]
        if not new and not self.rows:
            new = [0]
        for row in new:
            self.keys += 1
            self.rows[row] = Request(self.keys, [[] for _ in self.case.sizes])
            events.append({"kind": "admit", "request": self.keys, "count": MODEL_LEN})
        batch = list(self.rows)
        self.random.shuffle(batch)
        lengths = [self.random.choice([1, 1, 3, 17, (TOKENS - 10) // len(batch)]) for _ in batch]
        while sum(lengths) > TOKENS - 10:
            lengths[lengths.index(max(lengths))] = 1
        scheduled = []
        for row, tokens in zip(batch, lengths, strict=True):
            request = self.rows[row]
            added = []
            for group, blocks in enumerate(request.blocks):
                needed = -(-(request.computed + tokens) // self.case.span(group)) - len(blocks)
                fresh = [self.free.pop() for _ in range(needed)]
                added.append(fresh)
                blocks += fresh
                if fresh:
                    events.append(
                        {
                            "kind": "append",
                            "request": request.key,
                            "group": group,
                            "blocks": fresh,
                        }
                    )
            self.kernel.append_block_ids(row, tuple(added), overwrite=row in new)
            scheduled.append(
                {
                    "request": request.key,
                    "num_tokens": tokens,
                    "num_computed": request.computed,
                }
            )
        self.guard.begin(self.step_number, events, scheduled)
        self.plan(batch, lengths)
        self.guard.end(self.step_number)
        for row, tokens in zip(batch, lengths, strict=True):
            self.rows[row].computed += tokens

    def plan(self, batch: list[int], lengths: list[int]) -> None:
        self.kernel.apply_staged_writes()
        padded_rows = min(ROWS, len(batch) + 2)
        starts = [0]
        for tokens in lengths:
            starts.append(starts[-1] + tokens)
        padded_tokens = min(TOKENS, starts[-1] + 8)
        query_start = torch.tensor(starts + [starts[-1]] * (padded_rows - len(batch)))
        query_start = query_start.to(torch.int32)
        seq_lens = torch.zeros(padded_rows, dtype=torch.int32)
        positions = torch.zeros(TOKENS, dtype=torch.int64)
        for b, row in enumerate(batch):
            first = self.rows[row].computed
            seq_lens[b] = first + lengths[b]
            positions[starts[b] : starts[b + 1]] = torch.arange(first, first + lengths[b])
        index = torch.tensor(batch, dtype=torch.int32 if SPLITS else torch.int64)
        tables = self.kernel.gather_block_tables(index, num_reqs_padded=padded_rows)
        slots = self.kernel.compute_slot_mappings(
            index,
            query_start[: len(batch) + 1],
            positions,
            num_tokens_padded=padded_tokens,
        )
        groups = []
        for group, table in enumerate(tables):
            data, _, kind = array(table)
            groups.append(
                {
                    "group": group,
                    "table": (data, table.shape[0] * table.stride(0), kind),
                    "rows": table.shape[0],
                    "columns": table.shape[1],
                    "row_stride": table.stride(0),
                    "slots": array(slots[group]),
                }
            )
        self.guard.plan(
            self.step_number,
            {
                "requests": [self.rows[row].key for row in batch],
                "padded_rows": padded_rows,
                "num_tokens": starts[-1],
                "padded_tokens": padded_tokens,
                "query_start": array(query_start),
                "seq_lens": array(seq_lens),
                "positions": array(positions),
                "groups": groups,
            },
        )


def cases() -> list[Case]:
    """Layouts of this vLLM."""
    plain = [Case([16]), Case([16, 64]), Case([16, 16, 32])]
    ranks = [
        Case([size], ranks, rank, interleave)
        for size, ranks, interleave in [(16, 2, 1), (32, 2, 8), (16, 4, 4), (16, 4, 1)]
        for rank in (0, ranks - 1)
    ]
    if SPLITS:  # kernel blocks smaller than blocks: vllm #51031 is about those
        split = [Case([16], kernel_sizes=[8])]
        wrong = [Case([8], 2, rank, 8, kernel_sizes=[4]) for rank in (0, 1)]
        return plain + split + ranks + wrong
    mixed = [Case([16, 16], 4, rank, 4, [True, False]) for rank in (0, 1, 3)]
    return plain + ranks + mixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=15)
    arguments = parser.parse_args()
    for number, case in enumerate(cases()):
        engine = Engine(case, arguments.seed * 1000 + number)
        for _ in range(arguments.steps):
            engine.step()
        found = engine.guard.findings()
        verdict = engine.guard.verdict()
        line = {
            "case": asdict(case),
            "splits": SPLITS,
            "steps": verdict["steps_judged"],
            "slots": verdict["slots"],
            "entries": verdict["entries"],
            "verdict": verdict["verdict"],
            "step_gaps": verdict["step_gaps"],
            "first_violated_step": verdict["first_violated_step"],
            "codes": sorted({finding["code"] for _, _, finding in found}),
            "causes": found[0][2]["causes"] if found else [],
            "first": "\n".join(found[0][:2]) if found else "",
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
