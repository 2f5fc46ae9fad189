# SPDX-License-Identifier: Apache-2.0
"""Drives the real manager of prefill context parallelism of vLLM's Model Runner V2, alone.

    python tests/parts/drive_pcp.py [--seed N] [--steps N]

Runs in the rig's environment, with any vLLM's sources in front on PYTHONPATH. Random batches go
through PCPManager and the BlockTables that it asks; the slots of all ranks that come back are put
into records, which the oracle judges, and the core where it has rules for them. Then the same with
one slot of each batch changed. Prints a JSON line for each case. Nothing of the managers' own
arithmetic is repeated here.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import os
import random
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent / "oracle"), str(TESTS / "oracle")]

from rig import environment, triton_interp  # noqa: E402,F401  before anything imports vllm

environment.activate()

import kvguard  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import vllm.v1.worker.cpu.shm  # noqa: E402,F401  puts host memory where the kernels want a device's
from vllm.config import CUDAGraphMode  # noqa: E402
from vllm.v1.worker.gpu.block_table import BlockTables  # noqa: E402
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor  # noqa: E402
from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers  # noqa: E402
from vllm.v1.worker.gpu.pcp_manager import PCPManager  # noqa: E402
from vllm.v1.worker.gpu.states import RequestState  # noqa: E402

# The library that was built with the package under test.
os.environ.setdefault("KVGUARD_LIBRARY", str(Path(kvguard.__file__).parents[2] / "libkvguard.so"))

import core_bridge  # noqa: E402
from kvguard_oracle import judge_lines  # noqa: E402
from scenario import (  # noqa: E402
    admit,
    append,
    begin,
    end,
    event,
    geometry,
    group,
    group_plan,
    outcome,
    plan,
    pool,
    scheduled,
)

Line = dict[str, Any]
ROWS, TOKENS, MODEL_LEN, BLOCKS, MOST_DRAFTS = 8, 128, 256, 20_000, 3
CPU = torch.device("cpu")
SPLITS = "kernel_block_sizes" in inspect.signature(BlockTables.__init__).parameters
SHARDS_DECODES = "shard_decode_requests" in inspect.signature(PCPManager.__init__).parameters


@dataclass
class Case:
    """A layout. shards: the manager gives each row that is not prefilling to one rank."""

    layout: int
    ranks: int
    sizes: list[int]
    shards: bool = False
    dcp: int = 1
    dcp_rank: int = 0
    interleave: int = 1
    rank: int = 0

    def span(self, index: int) -> int:
        """Tokens of a request that one column of the group stands for."""
        return self.sizes[index] * self.dcp

    def columns(self, index: int) -> int:
        return -(-MODEL_LEN // self.span(index))

    def tables(self) -> BlockTables:
        known = {"kernel_block_sizes": self.sizes} if SPLITS else {}
        return BlockTables(
            block_sizes=self.sizes,
            max_num_reqs=ROWS,
            max_num_batched_tokens=TOKENS,
            max_num_blocks_per_group=[self.columns(g) for g in range(len(self.sizes))],
            device=CPU,
            cp_size=self.dcp,
            cp_rank=self.dcp_rank,
            cp_interleave=self.interleave,
            **known,
        )

    def manager(self, tables: BlockTables) -> PCPManager:
        if SHARDS_DECODES:
            known: Line = {"shard_decode_requests": self.shards}
        else:
            known = {"req_states": RequestState(ROWS, MODEL_LEN, TOKENS, 0, 100, CPU)}
        return PCPManager(
            pcp_world_size=self.ranks,
            pcp_rank=self.rank,
            device=CPU,
            max_num_reqs=ROWS,
            max_num_tokens=TOKENS,
            block_tables=tables,
            dcp_world_size=self.dcp,
            dcp_rank=self.dcp_rank,
            cp_interleave=self.interleave,
            **known,
        )

    def described(self) -> Line:
        groups = [
            group(id=g, block_size=size, kernel_block_size=size, max_columns=self.columns(g))
            for g, size in enumerate(self.sizes)
        ]
        return geometry(
            groups,
            [pool(num_blocks=BLOCKS)],
            max_rows=ROWS,
            max_tokens=TOKENS,
            max_model_len=MODEL_LEN,
            max_drafts=MOST_DRAFTS,
            num_ranks=self.ranks,
            rank=self.rank,
            dcp_size=self.dcp,
            dcp_rank=self.dcp_rank,
            interleave=self.interleave,
            pcp_size=self.ranks,
            pcp_rank=self.rank,
            pcp_layout=self.layout,
        )


@dataclass
class Request:
    key: int
    # tokens when it came: below this it is prefilling
    known: int
    computed: int
    blocks: list[list[int]] = field(default_factory=list)


@dataclass
class Work:
    """A row of a batch: `drafts` of its `tokens` are."""

    row: int
    request: Request
    tokens: int
    drafts: int = 0


class Engine:
    """A scheduler and a runner's input batch, as small as they can be; requests come and go."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.random = random.Random(seed)
        self.tables = case.tables()
        self.manager = case.manager(self.tables)
        self.buffers = InputBuffers(ROWS, TOKENS, CPU)
        self.free = list(range(1, BLOCKS))
        self.random.shuffle(self.free)
        self.rows: dict[int, Request] = {}
        self.number = self.keys = 0
        self.right: list[Line] = [case.described()]
        self.wrong: list[Line] = [case.described()]
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        self.number += 1
        events = self.leave()
        new = self.come()
        batch = self.schedule()
        for work in batch:
            request = work.request
            added = [self.bound(request, g, work.tokens) for g in range(len(self.case.sizes))]
            self.tables.append_block_ids(work.row, tuple(added), overwrite=work.row in new)
            if work.row in new:
                row = [list(blocks) for blocks in request.blocks]
                events += admit(request.key, *row, first=request.computed, count=request.known)
            else:
                events += [
                    append(request.key, *fresh, group=g) for g, fresh in enumerate(added) if fresh
                ]
        told = [
            scheduled(work.request.key, work.tokens, work.request.computed, work.drafts)
            for work in batch
        ]
        self.say(begin(self.number, events, told))
        self.show(batch)
        rejected = [(work.request.key, self.random.randint(0, work.drafts)) for work in batch]
        self.say(outcome(self.number, *[row for row in rejected if row[1]]), end(self.number))
        for work, (_, back) in zip(batch, rejected, strict=True):
            work.request.computed += work.tokens - back

    def say(self, *lines: Line) -> None:
        self.right += lines
        self.wrong += lines

    def leave(self) -> list[Line]:
        gone = [
            row
            for row, request in self.rows.items()
            if self.random.random() < 0.08 or request.computed > MODEL_LEN - 100
        ]
        return [event("finish", self.rows.pop(row).key) for row in gone]

    def come(self) -> list[int]:
        new = [r for r in range(ROWS) if r not in self.rows and self.random.random() < 0.4]
        for row in new or ([] if self.rows else [0]):
            self.keys += 1
            known = self.random.choice([1, 5, 7, 16, 33, 60, 90, 120])
            # whole columns of another request's, as a prefix hit would have it
            span = max(self.case.span(g) for g in range(len(self.case.sizes)))
            hit = self.random.choice([0, 0, self.random.randint(0, (known - 1) // span) * span])
            blocks: list[list[int]] = [[] for _ in self.case.sizes]
            self.rows[row] = Request(self.keys, known, hit, blocks)
        return [row for row, request in self.rows.items() if not request.blocks[0]]

    def schedule(self) -> list[Work]:
        """Rows in any order: some whole prompts, some chunks, some decodes with drafts."""
        batch, room = [], TOKENS
        rows = list(self.rows.items())
        self.random.shuffle(rows)
        for number, (row, request) in enumerate(rows):
            left = request.known - request.computed
            # 0.28 has no drafts beside this
            drafts = self.random.randint(0, MOST_DRAFTS) if SHARDS_DECODES else 0
            if left > 0:
                tokens = self.random.choice([left, left, 1, 2, 3, 5, 8, 13, 29])
                drafts = drafts if self.random.random() < 0.2 and tokens >= left else 0
                tokens = min(tokens, left)
            else:
                tokens = 1
            fits = room - 4 * (len(rows) - number - 1)
            if tokens + drafts > fits:
                tokens, drafts = min(tokens, fits), 0
            room -= tokens + drafts
            batch.append(Work(row, request, tokens + drafts, drafts))
            self.count(request, tokens, drafts)
        return batch

    def count(self, request: Request, tokens: int, drafts: int) -> None:
        prefilling = request.computed < request.known
        self.seen["prefills" if prefilling else "decodes"] += 1
        self.seen["with context"] += prefilling and request.computed > 0
        self.seen["chunked"] += prefilling and request.computed + tokens < request.known
        self.seen["with drafts"] += drafts > 0
        tokens += drafts
        empty = (2 * self.case.ranks - 1) * -(-tokens // (2 * self.case.ranks)) >= tokens
        self.seen["with an empty chunk"] += prefilling and empty
        self.seen["without an empty chunk"] += prefilling and not empty

    def bound(self, request: Request, index: int, tokens: int) -> list[int]:
        blocks = request.blocks[index]
        needed = -(-(request.computed + tokens) // self.case.span(index)) - len(blocks)
        fresh = [self.free.pop() for _ in range(needed)]
        blocks += fresh
        return fresh

    # What the manager makes of it

    def input_batch(self, batch: list[Work]) -> InputBatch:
        """The batch of the scheduler, as the runner hands it to the manager."""
        lengths = np.array([work.tokens for work in batch], dtype=np.int32)
        computed = np.array([work.request.computed for work in batch], dtype=np.int32)
        known = np.array([work.request.known for work in batch], dtype=np.int32)
        index = np.array([work.row for work in batch], dtype=np.int32 if SPLITS else np.intp)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        spans = [range(c, c + q) for c, q in zip(computed.tolist(), lengths.tolist(), strict=True)]
        positions = [position for span in spans for position in span]
        prefilled = np.minimum(computed, known)
        made = InputBatch.make_dummy(len(batch), int(lengths.sum()), self.buffers)
        self.buffers.positions[: len(positions)] = torch.tensor(positions)
        drafts = np.array([work.drafts for work in batch], dtype=np.int32)
        return replace(
            made,
            idx_mapping=torch.from_numpy(index),
            idx_mapping_np=index,
            expanded_idx_mapping=torch.from_numpy(index),
            num_scheduled_tokens=lengths,
            num_draft_tokens=int(drafts.sum()),
            num_draft_tokens_per_req=drafts,
            query_start_loc=torch.from_numpy(offsets),
            query_start_loc_np=offsets,
            seq_lens=torch.from_numpy(computed + lengths),
            num_computed_tokens_np=computed,
            prefill_len_np=known,
            num_computed_prefill_tokens_np=prefilled,
            is_prefilling_np=prefilled < known,
            has_prefill=bool((prefilled < known).any()),
        )

    def partitioned(self, batch: InputBatch) -> InputBatch:
        if not SHARDS_DECODES:
            return self.manager.partition_batch(batch)
        mode, tokens = CUDAGraphMode.NONE, 0
        if self.random.random() < 0.3:
            # parts that are longer than needed, for a graph
            mode = CUDAGraphMode.PIECEWISE
            tokens = self.manager.get_num_tokens_for_dispatch(
                batch.num_scheduled_tokens, batch.is_prefilling_np
            )
            tokens = min(tokens + self.random.randint(0, 8), TOKENS)
            self.seen["padded for a graph"] += 1
        return self.manager.partition_batch(batch, BatchExecutionDescriptor(mode, tokens, None))

    def show(self, batch: list[Work]) -> None:
        self.tables.apply_staged_writes()
        whole = self.input_batch(batch)
        tables = self.tables.gather_block_tables(whole.idx_mapping, num_reqs_padded=len(batch))
        tables = tuple(table.clone() for table in tables)
        _, slots = self.manager.prepare_attn(self.partitioned(whole))
        gathered = slots.tolist()
        self.seen["slots"] += sum(map(len, gathered))
        parts = [
            group_plan(table.tolist(), of_group, g, self.case.columns(g))
            for g, (table, of_group) in enumerate(zip(tables, gathered, strict=True))
        ]
        line = plan(
            self.number,
            [work.request.key for work in batch],
            whole.query_start_loc.tolist(),
            whole.seq_lens.tolist(),
            *parts,
            positions=whole.positions.tolist(),
        )
        self.right.append(line)
        self.wrong.append(self.with_one_wrong(line))
        if self.random.random() < 0.2:
            self.show_dummy()

    def show_dummy(self) -> None:
        tokens = self.random.randint(1, 16)
        slots = self.manager.get_dummy_slot_mappings(tokens).tolist()
        parts = [group_plan(None, of_group, g) for g, of_group in enumerate(slots)]
        line = plan(
            self.number, [], [0], [], *parts, pass_name="dummy", num_tokens=0, padded_tokens=tokens
        )
        self.say(line)
        self.seen["dummies"] += 1

    def with_one_wrong(self, line: Line) -> Line:
        wrong = copy.deepcopy(line)
        part = self.random.choice(wrong["groups"])
        values = part["slots"]["values"]
        index = self.random.randrange(len(values))
        size = self.case.sizes[part["group"]]
        held = [block for r in self.rows.values() for block in r.blocks[part["group"]]]
        others = [
            -1,
            self.random.choice(values),
            self.random.choice(held) * size + self.random.randrange(size),
            self.random.randrange(size),
            self.random.choice(self.free) * size,
            BLOCKS * size,
        ]
        values[index] = self.random.choice([slot for slot in others if slot != values[index]])
        return wrong


# What is said of it


def told(lines: list[Line], number: int | None = None) -> str:
    """A batch in words, for a report: the requests, and the slots."""
    plans = [line for line in lines if line["record"] == "plan" and line["pass"] == "target"]
    line = next(line for line in plans if number is None or line["step"] == number)
    begun = next(b for b in lines if b["record"] == "begin" and b["step"] == line["step"])
    events = [e for b in lines if b["record"] == "begin" for e in b["events"]]
    known = {e["request"]: e["count"] for e in events if e["kind"] == "admit"}
    rows = [
        {**row, "known": known[row["request"]]}
        for key in line["requests"]
        for row in begun["scheduled"]
        if row["request"] == key
    ]
    return json.dumps({"rows": rows, "groups": line["groups"]})


def core_says(lines: list[Line]) -> Line | None:
    """None: this build has no rules for it."""
    try:
        return core_bridge.judge(lines)
    except RuntimeError as error:
        if "kvguard_create: -3 " in str(error):
            return None
        raise


def judged(case: Case, engine: Engine, steps: int) -> Line:
    right, wrong = judge_lines(engine.right), judge_lines(engine.wrong)
    found = {finding.step for finding in wrong.proofs()}
    first = min((finding.step for finding in right.findings), default=None)
    line = {
        "case": asdict(case),
        "batches": right.steps_judged,
        "seen": engine.seen,
        "oracle": {
            "findings": [finding.as_json() for finding in right.findings][:8],
            "verdict": right.verdict(),
            "first": "" if first is None else told(engine.right, first),
            "missed": sorted(set(range(1, steps + 1)) - found),
            "codes": sorted({finding.code for finding in wrong.findings}),
        },
        "as_another": {},
        "core": None,
    }
    for layout in (1, 2, 3):
        if layout != case.layout:
            declared = [{**engine.right[0], "pcp_layout": layout}, *engine.right[1:]]
            steps_found = {finding.step for finding in judge_lines(declared).findings}
            line["as_another"][layout] = len(steps_found)
    says, says_wrong = core_says(engine.right), core_says(engine.wrong)
    if says is not None and says_wrong is not None:
        in_steps = {finding["step"] for finding in says_wrong["findings"]}
        line["core"] = {
            "findings": says["findings"][:8],
            "verdict": says["verdict"],
            "errors": (says["errors"] + says_wrong["errors"])[:3],
            "missed": sorted(set(range(1, steps + 1)) - in_steps),
            "differences": (
                core_bridge.compare(says, right) + core_bridge.compare(says_wrong, wrong)
            )[:8],
        }
    return line


def cases(seed: int) -> list[Case]:
    """Layouts of this vLLM. 0.32's own that gives no row to one rank makes those of 0.30."""
    draw = random.Random(seed)
    made = []
    for ranks in (2, 3, 4):
        for dcp, interleave in ((1, 1), (2, 1), (2, 4)):
            shape = {
                "ranks": ranks,
                "sizes": draw.choice([[4], [8], [16], [4, 8]]),
                "dcp": dcp,
                "dcp_rank": draw.randrange(dcp),
                "interleave": interleave,
                "rank": draw.randrange(ranks),
            }
            if not SHARDS_DECODES:
                made.append(Case(1, **shape))
                continue
            made.append(Case(2, **shape))
            # with ranks of both kinds a vLLM gives no row to one rank
            made.append(Case(3, shards=dcp == 1, **shape))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    for number, case in enumerate(cases(arguments.seed)):
        engine = Engine(case, arguments.seed * 1000 + number)
        for _ in range(arguments.steps):
            engine.step()
        print(json.dumps(judged(case, engine, arguments.steps)), flush=True)


if __name__ == "__main__":
    main()
