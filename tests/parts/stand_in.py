# SPDX-License-Identifier: Apache-2.0
"""What a model runner keeps of its requests and answers to a SchedulerOutput, without a model."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from kvguard import _core
from recurrent import Recurrent
from store_connector import Load, Send, Transfers
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

IS_ACCEPTED = 0.7  # of the drafts, one after the other
LOAD_FAILS = 0.25  # of the loads
MOST_STEPS = 6  # that a transfer takes


@dataclass
class Row:
    """One request in the runner."""

    computed: int  # tokens whose KV is valid: the runner's own count
    known: int  # tokens known at its admission; from the step that reaches them on it samples
    blocks: list[list[int]]  # of each group


@dataclass(frozen=True)
class Result:
    """What one row of a step came to."""

    name: str
    drafts: int
    sampled: int
    rejected: int


@dataclass
class UnderWay:
    """A transfer that ends by itself."""

    steps: int
    what: Load | Send


class StandIn:
    """Rows that follow SchedulerOutputs in order, as the runner's do."""

    def __init__(
        self, rng: random.Random, is_async: bool, block_size: int, seen: Counter[str]
    ) -> None:
        self.rows: dict[str, Row] = {}
        self.external: dict[str, int] = {}  # tokens of the latest load of each request
        self.taken_back: list[tuple[str, int]] = []  # by this step: name, its count before
        self.deaf: set[str] = set()  # requests whose count does not go back (vLLM's issue 49250)
        # Blocks that are computed again after a failed load, and who held them then.
        self.spoiled: dict[int, frozenset[str]] = {}
        self.unfilled: set[int] = set()  # blocks that a load left so, and nothing has filled since
        self.unfilled_hits: list[str] = []  # requests admitted to such blocks in this step
        self.states: list[Recurrent] = []  # of the recurrent groups
        self.tells_copies = False  # of states
        self._shown: list[dict[str, Any]] = []  # of states, by this step's plan
        self._copies: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []  # this step's transfers, as records have them
        self._ids: dict[Load | Send, int] = {}  # of the transfers that are told
        self._random = rng
        self._is_async = is_async
        self._block_size = block_size
        self._seen = seen
        self._failed: set[str] = set()  # whose synchronous load failed: counts go back
        self._under_way: list[UnderWay] = []

    def start(self, output: Any) -> None:
        """Rows are released, added and brought up to date."""
        self.taken_back.clear()
        for name in [*output.finished_req_ids, *(output.preempted_req_ids or ())]:
            self.rows.pop(name, None)
        for new in output.scheduled_new_reqs:
            blocks = [list(ids) for ids in new.block_ids]
            self.rows[new.req_id] = Row(new.num_computed_tokens, len(new.prefill_token_ids), blocks)
            for states in self.states:
                states.admit(new.req_id, new.num_computed_tokens, blocks[states.group])
        cached = output.scheduled_cached_reqs
        for name, computed, new_blocks in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        ):
            row = self.rows[name]
            for states in self.states if new_blocks else ():
                states.note_appended(row.blocks[states.group], new_blocks[states.group])
            for ids, more in zip(row.blocks, new_blocks or (), strict=bool(new_blocks)):
                ids.extend(more)
            if computed < row.computed and name not in self.deaf:
                assert self._failed, f"{name}: {computed} tokens after {row.computed}"
                self._seen["taken_back"] += 1
                self.taken_back.append((name, row.computed))
                row.computed = computed
            # Only drafts that are not told yet may stand between the two.
            assert self._is_async or name in self.deaf or computed == row.computed, name
        self._count_spoiled(output)
        self._follow_unfilled(output)

    def _follow_unfilled(self, output: Any) -> None:
        """vLLM 0.32 leaves the blocks of a synchronous load that failed in its prefix cache until
        they are computed again; a request that is preempted or aborted before never does it, and
        the next one that hits them reads what was never written."""
        self.unfilled_hits.clear()
        if not self.unfilled or self.deaf:
            return
        size = self._block_size
        for name, length in output.num_scheduled_tokens.items():
            row = self.rows[name]
            columns = range(-(-row.computed // size), -(-(row.computed + length) // size))
            self.unfilled.difference_update(row.blocks[0][c] for c in columns)
        loaded = {block for load in output.kv_connector_metadata.loads for block in load.blocks[0]}
        for new in output.scheduled_new_reqs:
            row = self.rows[new.req_id]
            if self.unfilled.intersection(row.blocks[0][: row.computed // size]) - loaded:
                self.unfilled_hits.append(new.req_id)

    def _count_spoiled(self, output: Any) -> None:
        """A request that waits for a load of its own shares blocks of another one, whose load
        fails: each computes them again, one beside the other (trap 11 of tests/traps). What the
        guard has to suspect there is counted, so that it is known to suspect nothing else."""
        if not self.spoiled or self.deaf:
            return
        for new in output.scheduled_new_reqs:
            row = self.rows[new.req_id]
            for column in range(row.computed // self._block_size, len(row.blocks[0])):
                end = (column + 1) * self._block_size
                is_last_token = row.computed == row.known - 1 and end <= row.known
                if self._others(new.req_id, column) and not is_last_token:
                    self._seen["spoiled_given"] += 1
        written: dict[int, str] = {}
        for name, length in output.num_scheduled_tokens.items():
            start = self.rows[name].computed
            last = (start + length - 1) // self._block_size
            for column in range(start // self._block_size, last + 1):
                block = self.rows[name].blocks[0][column]
                if written.setdefault(block, name) != name and self._others(name, column):
                    self._seen["spoiled_written"] += 1

    def _others(self, name: str, column: int) -> bool:
        """Whether another request that has to compute this block again still holds it."""
        block = self.rows[name].blocks[0][column]
        lost = self.spoiled.get(block, frozenset())
        return name in lost and any(
            block in self.rows[other].blocks[0]
            for other in lost
            if other != name and other in self.rows
        )

    def feed_plan(self, stream: Any, output: Any) -> None:
        """Rows, lengths and positions as the runner would show them, and states. It has no
        tables."""
        lengths = output.num_scheduled_tokens
        names = list(lengths)
        starts = [self.rows[name].computed for name in names]
        if self._copies:
            stream.tell([{**copy, "kind": "copy-done"} for copy in self._copies])
        query_start = array("i", accumulate(lengths.values(), initial=0))
        seq_lens = array("i", [s + q for s, q in zip(starts, lengths.values(), strict=True)])
        positions = array("q")
        for start, end in zip(starts, seq_lens, strict=True):
            positions.extend(range(start, end))
        stream.plan(
            _core.STAGE_PLANNED,
            names,
            len(names),
            len(positions),
            len(positions),
            (query_start.buffer_info()[0], len(query_start), _core.I32),
            (seq_lens.buffer_info()[0], len(seq_lens), _core.I32),
            (positions.buffer_info()[0], len(positions), _core.I64),
            tuple(self._shown),
        )

    def take_states(self, stream: Any, output: Any) -> None:
        """What the step reads and leaves of states, for its plan, and what is copied before."""
        lengths = output.num_scheduled_tokens
        rows = [self.rows[name] for name in lengths]
        drafts = [len(output.scheduled_spec_decode_tokens.get(name, ())) for name in lengths]
        self._shown, self._copies = [], []
        for states in self.states:
            shown, pairs = states.take(list(lengths), rows, list(lengths.values()), drafts)
            self._shown.append(shown)
            if pairs and self.tells_copies:
                self._copies.append({"kind": "copy", "group": states.group, "blocks": pairs})
        stream.behind += [dict(copy) for copy in self._copies]

    def announce(self, stream: Any, transfers: Transfers) -> None:
        """Tells of what begins with this step, before the rows follow it."""
        for load in transfers.loads:
            # Of a request that waits for its load no key is known.
            name = "" if load.is_async else load.name
            is_written = not load.is_async and (load.first + load.count) % self._block_size > 0
            self._seen["written_behind_loads"] += is_written
            more = {"blocks": load.blocks[0], "first": load.first, "count": load.count}
            stream.behind.append(self._event("load", load, name=name, **more))
        for send in transfers.sends:
            key = stream.key_of(send.name) if send.name in self.rows else 0
            event = self._event("send-pending", send, request=key, blocks=send.blocks[0])
            stream.before.append(event)

    def _event(self, kind: str, what: Load | Send, **more: Any) -> dict[str, Any]:
        if what not in self._ids:
            self._ids[what] = len(self._ids) + 1
        return {"kind": kind, "group": 0, "value": self._ids[what], **more}

    def finish(self, output: Any) -> tuple[ModelRunnerOutput, list[Result]]:
        """Samples, moves the counts, and lets transfers end."""
        results = []
        padded = {new.req_id for new in output.scheduled_new_reqs}  # their drafts are none
        for name, length in output.num_scheduled_tokens.items():
            row = self.rows[name]
            drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
            sampled = rejected = 0
            if row.computed + length >= row.known:
                sampled = 1 + (0 if name in padded else self._accepted(drafts))
                rejected = drafts + 1 - sampled
                self._seen["drafts"] += drafts
                self._seen["accepted"] += sampled - 1
                self._seen["rejected"] += rejected
            row.computed += length - rejected
            for states in self.states:
                states.finish(name, row, sampled)
            results.append(Result(name, drafts, sampled, rejected))
        answer = ModelRunnerOutput(
            req_ids=[r.name for r in results],
            req_id_to_index={r.name: i for i, r in enumerate(results)},
            sampled_token_ids=[
                [self._random.randrange(3, 250) for _ in range(r.sampled)] for r in results
            ],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        if isinstance(output.kv_connector_metadata, Transfers):
            answer.kv_connector_output = self._transfer(output.kv_connector_metadata)
        return answer, results

    def _accepted(self, drafts: int) -> int:
        count = 0
        while count < drafts and self._random.random() < IS_ACCEPTED:
            count += 1
        return count

    def _transfer(self, transfers: Transfers) -> KVConnectorOutput:
        said = KVConnectorOutput(finished_recving=set(), finished_sending=set())
        self.ended.clear()
        for each in self._under_way:
            each.steps -= 1
        for each in [u for u in self._under_way if u.steps <= 0]:
            self._under_way.remove(each)
            if isinstance(each.what, Send):
                said.finished_sending.add(each.what.name)
                self.ended.append(self._event("send-done", each.what))
                self._seen["sends"] += 1
            else:
                said.finished_recving.add(each.what.name)
                self._end(each.what, said)
        for load in transfers.loads:
            self._seen["external_hits"] += 1
            self._seen["external_tokens"] += load.count
            self.external[load.name] = load.count
            if load.is_async:
                self._under_way.append(UnderWay(self._steps(), load))
            else:
                self._end(load, said)
        for send in transfers.sends:
            self._under_way.append(UnderWay(self._steps(), send))
        return said

    def _steps(self) -> int:
        return self._random.randrange(1, MOST_STEPS)

    def _end(self, load: Load, said: KVConnectorOutput) -> None:
        kind = "async" if load.is_async else "sync"
        self._seen[f"{kind}_loads"] += 1
        lost: list[int] = []
        # A synchronous load that fails is named by its blocks, of which only the only group's are
        # clear. Where the next step is under way by then, vLLM 0.32 takes its tokens and drafts
        # off the count that it has taken back already: no healthy stream.
        may_fail = load.is_async or (len(load.blocks) == 1 and not self._is_async)
        if may_fail and self._random.random() < LOAD_FAILS:
            self._seen[f"{kind}_failed"] += 1
            lost = self._random.sample(load.blocks[0], self._random.randint(1, len(load.blocks[0])))
            if len(load.blocks) > 1:
                said.failed_recving.add(load.name)
            else:
                said.invalid_block_ids.update(lost)
            if not load.is_async:
                self._failed.add(load.name)
        self.unfilled.difference_update(load.blocks[0])
        self.unfilled.update(lost)
        kind = "load-failed" if lost else "load-done"
        self.ended.append(self._event(kind, load, blocks=lost))
