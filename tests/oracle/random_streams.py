# SPDX-License-Identifier: Apache-2.0
"""Random streams that no engine would make: small pools, wrong and right records mixed.

The next record is drawn beside an oracle that is fed with it, so that most numbers are near to what
is expected: a stream of pure noise would be unknown requests alone.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from random import Random

from kvguard_oracle import Judge
from kvguard_oracle.account import ScheduledRequest
from kvguard_oracle.geometry import GROUP_REPLICATED, Group, read_geometry
from kvguard_oracle.records import read_record
from kvguard_oracle.table_rules import expected_entries
from kvguard_oracle.view import KnownRow
from scenario import (
    ASYNC,
    CONNECTOR,
    PAD_ROWS_NULL,
    Line,
    array,
    begin,
    end,
    event,
    geometry,
    group,
    group_plan,
    outcome,
    plan,
    pool,
    reset,
    scheduled,
)


def draw_kind(random: Random, windows: bool) -> Line:
    """Full attention, or (only where asked for: it costs numbers) a group that forgets."""
    if not windows:
        return {}
    kind = random.choice(["full", "window", "window", "chunked"])
    if kind == "full":
        return {}
    fields = {"kind": kind, "window": random.choice([1, 3, 4, 6, 9])}
    if kind == "window":
        fields |= {"sink": random.choice([0, 0, 1, 4, 5]), "retained": random.choice([0, 0, 2])}
    return fields


def shard(random: Random, line: Line) -> Line:
    """The geometry of a context-parallel rank; small blocks, so that columns stay small."""
    ranks = random.choice([2, 2, 3, 4])
    interleave = random.choice([1, 1, 2])
    for part in line["groups"]:
        sizes = [(2, 2), (2, 1), (4, 2)] if interleave == 2 else [(1, 1), (2, 2), (2, 1), (4, 2)]
        part["block_size"], part["kernel_block_size"] = random.choice(sizes)
        part["flags"] |= random.choice([0, 0, GROUP_REPLICATED])
    where = {"dcp_size": ranks, "dcp_rank": random.randrange(ranks), "interleave": interleave}
    return {**line, **where}


def draw_geometry(random: Random, windows: bool) -> Line:
    num_pools = random.choice([1, 1, 2])
    pools = [
        pool(id=i, num_blocks=random.choice([4, 7, 12]), null_block=random.choice([0, 0, 2]))
        for i in range(num_pools)
    ]
    groups = []
    for index in range(random.choice([1, 1, 2, 3])):
        block_size, kernel = random.choice([(1, 1), (2, 2), (4, 4), (4, 2), (6, 3), (4, 1)])
        groups.append(
            group(
                id=index,
                pool=random.randrange(num_pools),
                block_size=block_size,
                kernel_block_size=kernel,
                table_unit=random.choice(["block", "kernel_block"]),
                flags=random.choice([0, PAD_ROWS_NULL]),
                max_columns=random.choice([0, 3, 8]),
                **draw_kind(random, windows),
            )
        )
    return geometry(
        groups,
        pools,
        flags=random.choice([0, ASYNC, ASYNC, CONNECTOR, ASYNC | CONNECTOR]),
        max_model_len=random.choice([0, 6, 16, 64]),
        max_rows=16,
        max_tokens=64,
    )


@dataclass
class DrawnRow:
    """A row of a pass that is drawn next."""

    key: int
    start: int
    tokens: int
    # None: its request is not live, or not scheduled
    known: KnownRow | None


class Stream:
    """Draws records one after another; `lines` is what was drawn."""

    def __init__(
        self, random: Random, line: Line, transfers: bool, contents: bool, sharded: bool
    ) -> None:
        self.random = random
        self.lines = [line]
        # lengths of each group's own are drawn too
        self.sharded = sharded
        self.judge = Judge(read_geometry(self.lines[0]))
        self.next_key = 1
        # FREE, ZERO, COPY and transfers are drawn too
        self.transfers = transfers
        # tokens and domains are drawn too, and no block is bound twice: whose content it is then
        # hangs on which of the claims ends first
        self.contents = contents
        self.next_id = 1
        # of each request that was admitted
        self.tokens: dict[int, list[int]] = {}
        # (pool, block) that this record frees, zeroes or copies
        self.named: set[tuple[int, int]] = set()
        # the same of blocks that it binds
        self.drawn: set[tuple[int, int]] = set()
        self.step = 0
        # how often a number is changed on its way into the stream
        self.noise = self.random.choice([0.0, 0.005, 0.02, 0.1])

    def add(self, line: Line) -> None:
        line = copy.deepcopy(line)
        self.lines.append(line)
        self.judge.feed(read_record(line))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def blur(self, value: int) -> int:
        if not self.chance(self.noise):
            return value
        choices = [value + 1, value - 1, value + 4, value - 4, 0, -1, value * 2, 99, 2**31 - 1]
        return self.random.choice(choices)

    def live(self) -> list[int]:
        return list(self.judge.account.requests)

    def groups(self) -> list[Group]:
        return self.judge.geometry.groups

    def draw_block(self, group: Group) -> int:
        """Mostly a free one."""
        low = -1 if self.chance(self.noise) else 0
        blocks = range(low, group.pool.num_blocks + (1 if low else 0))
        free = [
            block
            for block in blocks
            if group.pool.in_range(block)
            and not group.pool.is_null(block)
            and not self.judge.account.claims(group.pool, block)
        ]
        if self.contents:
            free = [block for block in free if (group.pool.index, block) not in self.drawn]
            block = self.random.choice(free or [group.pool.num_blocks])
            self.drawn.add((group.pool.index, block))
            return block
        if free and not self.chance(self.noise * 3):
            return self.random.choice(free)
        return self.random.choice(blocks)

    def admission(self) -> list[Line]:
        key = self.next_key
        self.next_key += 1
        shared = self.random.choice(self.live()) if self.live() and self.chance(0.5) else None
        first = self.random.choice([0, 0, 4, 6, 8]) if shared else 0
        events = [event("admit", key, first=self.blur(first) if first else 0, count=9)]
        if self.contents:
            events[0]["tokens"] = self.tokens[key] = self.draw_tokens(shared)
        if self.contents and self.chance(0.3):
            events.append(self.draw_domain(key))
        # positions stay far from the edge of 32 bits, where the plan's arrays would wrap
        events[0]["first"] = min(max(events[0]["first"], 0), 2**20)
        for part in self.groups():
            blocks = self.draw_row(part, shared, first)
            events.append(event("replace", key, part.index, blocks=blocks))
        return events

    def draw_row(self, group: Group, shared: int | None, first: int) -> list[int]:
        """What another request has before `first`, and some more."""
        blocks: list[int] = []
        if shared is not None:
            row = self.judge.account.requests[shared].rows[group.index]
            columns = group.column_of(first)
            # a column that is not whole is no hit
            columns += self.sharded and self.chance(0.2)
            blocks = [entry.block for entry in row[:columns]]
        return blocks + [self.draw_block(group) for _ in range(self.random.randrange(3))]

    def draw_tokens(self, shared: int | None) -> list[int]:
        """Mostly those of the request that wrote the blocks; [] where they are absent."""
        if self.chance(0.2):
            return []
        tokens = list(self.tokens.get(shared, [])) if shared is not None else []
        tokens = tokens or [self.random.randrange(9) for _ in range(9)]
        return [self.random.randrange(9) if self.chance(self.noise) else t for t in tokens]

    def draw_domain(self, key: int) -> Line:
        kind, value = self.random.choice([1, 2, 5]), self.random.randrange(1, 3)
        return event(
            "domain", key, other=kind, value=value, first=self.random.choice([0, 0, 2, 8]), count=9
        )

    def draw_own_blocks(self, key: int, group: Group) -> tuple[list[int], int]:
        """Some neighbouring columns of a request, and the position of the first."""
        request = self.judge.account.requests.get(key)
        row = [entry.block for entry in request.rows[group.index]] if request is not None else []
        if not row or self.chance(self.noise):
            return [self.draw_block(group) for _ in range(self.random.randrange(1, 3))], 0
        first = self.random.randrange(len(row))
        blocks = row[first : first + self.random.randrange(1, 4)]
        return [self.blur(block) for block in blocks], group.first_of(first)

    def draw_transfer(self) -> Line:
        open_ids = list(self.judge.account.transfers.open)
        kind = self.random.choice(["reserve", "load", "load", "send-pending", "end", "end", "end"])
        if kind == "end":
            kind = self.random.choice(["load-done", "load-failed", "send-done", "cancel", "drain"])
            id_ = self.random.choice(open_ids or [self.next_id])
            told = self.judge.account.transfers.open.get(id_)
            blocks = self.draw_failed(told.blocks) if told and kind == "load-failed" else []
            return event(kind, 0, 0, value=max(self.blur(id_), 1), blocks=blocks)
        # of a live request, or of the one that comes next
        key = self.random.choice([*self.live(), self.next_key])
        group = self.random.choice(self.groups())
        blocks, first = self.draw_own_blocks(key, group)
        id_, self.next_id = self.next_id, self.next_id + 1
        if open_ids and self.chance(0.2):
            id_ = self.random.choice(open_ids)
        first = max(self.blur(first), 0) if kind == "load" else 0
        key = 0 if kind == "reserve" and self.chance(0.5) else key
        # to the end of its last block, or to some token of it
        count = max(group.end_of(len(blocks) - 1) - self.random.choice([0, 0, 1, 2, 3]), 0)
        count = count if kind == "load" else 0
        return event(kind, key, group.index, value=id_, first=first, count=count, blocks=blocks)

    def draw_failed(self, blocks: list[int]) -> list[int]:
        return blocks

    def draw_done(self, kind: str) -> Line | None:
        """ZERO_DONE or COPY_DONE of what was announced, most of it."""
        step = self.judge.step
        if step is None:
            return None
        group = self.random.choice(self.groups())
        told = step.zeroes if kind == "zero-done" else step.copies
        said = [numbers for part, *numbers in told if part.index == group.index]
        blocks = [block for numbers in said if self.chance(0.9) for block in numbers]
        return event(kind, 0, group.index, blocks=blocks) if blocks else None

    def draw_announcement(self, kind: str) -> Line:
        """FREE of a free block, ZERO or COPY of any, each named once in a record."""
        group = self.random.choice(self.groups())
        blocks = [
            b for b in range(group.pool.num_blocks) if (group.pool.index, b) not in self.named
        ]
        if kind == "free" and not self.chance(self.noise * 2):
            blocks = [block for block in blocks if not self.judge.account.claims(group.pool, block)]
        chosen = self.random.sample(blocks, min(len(blocks), 2))
        if kind == "copy":
            # the source may be named more than once
            sources = range(group.pool.num_blocks)
            chosen = [self.random.choice(sources), chosen[0]] if chosen else []
        self.named |= {(group.pool.index, block) for block in chosen}
        return event(kind, 0, group.index, blocks=chosen)

    def draw_event(self) -> list[Line]:
        if self.transfers and self.chance(0.3):
            return [self.draw_transfer()]
        if self.transfers and self.chance(0.3):
            return [self.draw_announcement(self.random.choice(["free", "zero", "copy"]))]
        return self.draw_row_event()

    def draw_row_event(self) -> list[Line]:
        kind = self.random.choice(
            ["admit", "admit", "finish", "preempt", "append", "append", "append", "rollback",
             "truncate", "replace"]
        )  # fmt: skip
        if kind == "admit":
            return self.admission()
        live = self.live()
        unknown = self.chance(self.noise)
        if not live and not unknown:
            return self.admission()
        key = self.next_key + 50 if unknown else self.random.choice(live)
        group = self.random.choice(self.groups())
        if kind in ("finish", "preempt"):
            return [event(kind, key)]
        if kind == "rollback":
            return [event(kind, key, count=self.random.randrange(4))]
        if kind == "truncate":
            return [event(kind, key, group.index, first=self.random.randrange(5))]
        blocks = [self.draw_block(group) for _ in range(self.random.randrange(1, 3))]
        return [event(kind, key, group.index, blocks=blocks)]

    def draw_begin(self) -> None:
        self.step += self.random.choice([1, 1, 1, 5])
        self.named = set()
        self.drawn = set()
        events = []
        for _ in range(self.random.randrange(8 if self.transfers else 4)):
            # each is drawn from the account before this step: two may claim one block
            events += self.draw_event()
        if self.chance(0.01):
            events.append(event("gap", name="drawn"))
        admitted = [e["request"] for e in events if e["kind"] == "admit"]
        keys = [key for key in [*self.live(), *admitted] if self.chance(0.7)]
        self.random.shuffle(keys)
        rows = []
        for key in keys:
            request = self.judge.account.requests.get(key)
            computed = 0
            if request is not None:
                high = request.count if self.judge.geometry.is_async() else request.high
                computed = self.random.randint(request.low, max(high, request.low))
            else:
                computed = next(e["first"] for e in events if e["request"] == key)
            tokens = self.random.randrange(1, 6)
            drafts = self.random.randrange(tokens) if self.chance(0.4) else 0
            drafts = min(drafts, self.judge.geometry.max_drafts)
            rows.append(scheduled(key, tokens, max(self.blur(computed), 0), drafts))
        self.add(begin(self.step, self.with_room(events, rows), rows))

    def with_room(self, events: list[Line], rows: list[Line]) -> list[Line]:
        return events

    def true_start(self, request: ScheduledRequest) -> int:
        return self.random.randint(request.start_low, request.start_high)

    def draw_plan(self, stage: str) -> None:
        """The target's; how it is drawn hangs on the engine."""
        self.add_pass(self.draw_rows_of_target(), stage)

    def draw_rows_of_target(self) -> list[DrawnRow]:
        step = self.judge.step
        assert step is not None
        keys = list(step.scheduled)
        self.random.shuffle(keys)
        if keys and self.chance(self.noise):
            keys.pop()
        if keys and self.chance(self.noise):
            keys.append(self.random.choice([*keys, *self.live(), 77]))
        starts = {key: self.true_start(s) for key, s in step.scheduled.items()}
        tokens = {key: told.row.num_tokens for key, told in step.scheduled.items()}
        return [self.row_of(key, starts.get(key, 0), tokens.get(key, 1)) for key in keys]

    def row_of(self, key: int, start: int, tokens: int) -> DrawnRow:
        step = self.judge.step
        assert step is not None
        request, told = self.judge.account.requests.get(key), step.scheduled.get(key)
        known = None if request is None or told is None else KnownRow(0, request, told, None, start)
        return DrawnRow(key, start, tokens, known)

    def add_pass(
        self, rows: list[DrawnRow], stage: str, pass_name: str = "target", index: int = 0
    ) -> None:
        query_start, seq_lens, positions, computed = [0], [], [], []
        for row in rows:
            query_start.append(query_start[-1] + row.tokens)
            seq_lens.append(self.blur(self.length_of(row, pass_name)))
            positions += [self.blur(row.start + i) for i in range(row.tokens)]
            computed.append(self.blur(row.start))
        pad_rows, pad_tokens = self.random.randrange(3), self.random.randrange(3)
        line = plan(
            self.step,
            [abs(self.blur(row.key)) for row in rows],
            query_start,
            seq_lens + [max(self.blur(0), 0)] * pad_rows,
            *[
                self.group_part(group, rows, pad_rows, pad_tokens)
                for group in self.groups()
                if self.is_shown(group, pass_name)
            ],
            positions=positions if self.chance(0.5) else None,
            num_computed=computed if self.chance(0.3) else None,
            stage=stage,
            pass_name=pass_name,
            pass_index=index,
        )
        line["padded_rows"] += pad_rows
        line["padded_tokens"] += pad_tokens
        line["query_start"]["values"] = [max(self.blur(v), 0) for v in query_start]
        self.add(line)

    def length_of(self, row: DrawnRow, pass_name: str) -> int:
        return row.start + row.tokens

    def is_shown(self, group: Group, pass_name: str) -> bool:
        return True

    def group_part(
        self, group: Group, rows: list[DrawnRow], pad_rows: int, pad_tokens: int
    ) -> Line:
        table, slots, counts, lengths = [], [], [], []
        for row in rows:
            if row.known is None:
                table.append([])
                slots += [-1] * row.tokens
                counts.append(0)
                lengths.append(0)
                continue
            entries = expected_entries(group, row.known)
            fit = [value if -(2**31) <= value < 2**31 else -1 for value in entries]
            counts.append(self.blur(len(fit)))
            lengths.append(group.local_length(row.start + row.tokens))
            residue = [self.random.randrange(4) for _ in range(self.random.randrange(2))]
            table.append([self.blur(value) for value in fit] + residue)
            slots += [self.draw_slot(group, row, row.start + i) for i in range(row.tokens)]
        null = group.pool.null_block * group.entries_per_block()
        columns = max([len(row) for row in table] + [4])
        table += [[max(self.blur(null), 0)] * columns for _ in range(pad_rows)]
        slots += [self.blur(-1)] * pad_tokens
        if slots and self.chance(self.noise):
            a, b = self.random.randrange(len(slots)), self.random.randrange(len(slots))
            slots[a], slots[b] = slots[b], slots[a]
        part = group_plan(
            table,
            slots,
            group.index,
            columns=columns,
            row_columns=[*counts, *[0] * pad_rows] if self.chance(0.4) else None,
        )
        if self.sharded and self.chance(0.5):
            told_lengths = [self.blur(length) for length in lengths]
            part["reads"]["seq_lens"] = array([*told_lengths, *[0] * pad_rows])
        if self.chance(self.noise):
            part["slots"] = None
        return part

    def draw_slot(self, group: Group, row: DrawnRow, position: int) -> int:
        block = self.judge.account.bound_block(row.key, group, position)
        right = -1 if block is None or block < 0 else group.slot_in(block, position)
        # where nothing is sharded every position is local
        local = group.is_local(position) or self.chance(self.noise)
        return self.blur(right if local else -1)

    def draw_outcome(self) -> None:
        """Of an open outcome, or of this very step."""
        open_outcomes = [
            (step, key, drafts)
            for key, request in self.judge.account.requests.items()
            for step, drafts in request.open_outcomes
        ]
        if self.judge.step is not None:
            open_outcomes += [
                (self.judge.step.number, key, told.row.num_drafts)
                for key, told in self.judge.step.scheduled.items()
                if told.row.num_drafts
            ]
        if open_outcomes:
            step, key, drafts = self.random.choice(open_outcomes)
            rejected = max(self.blur(self.random.randint(0, drafts)), 0)
            line = outcome(step, (key, min(rejected, 2**31)))
            if self.contents and self.chance(0.8):
                row = line["rows"][0]
                sampled = max(drafts - rejected + 1, 0)
                row["tokens"] = [self.random.randrange(9) for _ in range(sampled)]
                row["num_sampled"] = row["num_tokens"] = sampled
            self.add(line)

    def draw_results(self) -> None:
        """What an OUTCOME tells beside its rows."""
        if self.judge.last_begun is None:
            return
        drawn = [self.draw_done("zero-done"), self.draw_done("copy-done")]
        events = [done for done in drawn if done is not None]
        if self.chance(0.5):
            events.append(self.draw_transfer())
        self.add(outcome(self.judge.last_begun, events=events))

    def draw_dummy(self) -> None:
        part = group_plan(None, [self.blur(-1) for _ in range(3)])
        line = plan(self.step, [], [0], [], part, pass_name="dummy", padded_tokens=3)
        self.add(line)

    def draw_step(self) -> None:
        if self.chance(0.01):
            self.add(reset())
        if self.chance(0.1):
            self.draw_dummy()
        self.draw_begin()
        gap = self.judge.step is None or not self.judge.step.judges_plans
        if self.transfers and self.chance(0.8):
            self.draw_results()
        if self.chance(0.3):
            self.draw_outcome()
        if self.judge.step is not None and not self.judge.bindings_lost:
            self.draw_plan("planned")
            if self.chance(0.3):
                self.draw_outcome()
            if self.chance(0.3):
                self.draw_plan("final")
        if self.chance(0.1) and not gap and not self.judge.bindings_lost:
            self.draw_dummy()
        if self.chance(0.4):
            self.draw_outcome()
        self.add(end(self.step, flags=self.random.choice([0] * 20 + [1, 2])))
        while self.chance(0.3):
            self.draw_outcome()
        if self.transfers and self.chance(0.2):
            self.draw_results()


def draw(
    seed: int,
    steps: int = 12,
    windows: bool = False,
    transfers: bool = False,
    contents: bool = False,
    sharded: bool = False,
) -> list[Line]:
    """The same seed, the same stream."""
    random = Random(seed)
    line = draw_geometry(random, windows)
    line = shard(random, line) if sharded else line
    stream = Stream(random, line, transfers, contents, sharded)
    for _ in range(steps):
        stream.draw_step()
    return stream.lines
