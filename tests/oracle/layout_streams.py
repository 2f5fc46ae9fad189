# SPDX-License-Identifier: Apache-2.0
"""Random streams of engines that read by lists, of rings, of cells, and of blocks that move. As
pass_streams.py draws the others, beside an oracle.
"""

from __future__ import annotations

import copy
from random import Random

from kvguard_oracle import Judge
from kvguard_oracle.account import Account
from kvguard_oracle.events import apply_event
from kvguard_oracle.geometry import CSR, FLAT, RING, Group, read_geometry
from kvguard_oracle.list_rules import is_hole_at, right_entry
from kvguard_oracle.outcome import END_ABANDONED, END_NO_FORWARD
from kvguard_oracle.passes import DRAFT, MICRO_BATCH, TARGET
from kvguard_oracle.records import read_event, read_record
from kvguard_oracle.rings import first_read
from layout_scenario import (
    DEDUPE,
    MOVE,
    SWAP,
    engine,
    erase,
    flat_group,
    list_plan,
    rebase,
    remap,
    ring_group,
)
from pass_streams import MOST_MORE, PassStream
from random_streams import DrawnRow, draw_geometry
from scenario import (
    ASYNC,
    CONNECTOR,
    PAD_ROWS_NULL,
    Line,
    admit,
    array,
    begin,
    end,
    event,
    geometry,
    plan,
    pool,
    scheduled,
)

UNITS = ["block", "kernel_block", "slot"]
LARGEST = 2**31 - 1


def read_by(random: Random, line: Line) -> None:
    """How a group of full attention is read, or that it is a ring."""
    encoding = random.choice(["table", CSR, CSR, FLAT, FLAT, RING, RING])
    if encoding == RING:
        line.update(kind=RING, window=random.choice([1, 2, 3, 4, 6, 9]))
        encoding = random.choice(["table", FLAT])
    if encoding != "table":
        line["flags"] &= ~PAD_ROWS_NULL
        line["encoding"] = encoding
        line["table_unit"] = random.choice(UNITS) if encoding == CSR else "slot"


def draw_cells(random: Random) -> Line:
    pools = [pool(kind="cells", num_blocks=random.choice([12, 24]), null_block=-1)]
    groups = [
        flat_group(id=index, block_size=1, kernel_block_size=1, max_columns=0)
        for index in range(random.choice([1, 1, 2]))
    ]
    flags = random.choice([0, 0, ASYNC])
    length = random.choice([0, 16])
    return geometry(groups, pools, flags=flags, max_model_len=length, max_rows=16, max_tokens=64)


def draw_engine(random: Random) -> Line:
    if random.random() < 0.3:
        line = draw_cells(random)
    else:
        line = draw_geometry(random, windows=False)
        for described in line["groups"]:
            read_by(random, described)
            described["max_columns"] = 0
        for described in line["pools"]:
            described["num_blocks"] += 8
        line["flags"] |= random.choice([0, 0, CONNECTOR])
    if any(described["kind"] == RING for described in line["groups"]):
        line["max_drafts"] = 0
    line["flags"] |= random.choice([0, 0, 32])
    for described in line["groups"]:
        if random.random() < 0.2:
            scale = random.choice([1, 2, 3])
            stride, base = random.randint(1, scale), random.choice([0, 0, 50])
            described.update(index_scale=scale, token_stride=stride, slot_base=base)
    for described in line["pools"]:
        # beyond the pool, or where some token has its right slot
        described["write_trash"] = random.choice([-1, -1, 9000, random.randrange(64)])
    return line


class LayoutStream(PassStream):
    def __init__(self, random: Random, line: Line, transfers: bool, contents: bool) -> None:
        super().__init__(random, line, transfers, contents)
        # of the pass that is drawn
        self.pass_name = TARGET

    # what a BEGIN says

    def draw_row(self, group: Group, shared: int | None, first: int) -> list[int]:
        if group.is_ring():
            return [self.draw_block(group) for _ in range(self.random.randrange(3))]
        return super().draw_row(group, shared, first)

    def draw_row_event(self) -> list[Line]:
        group = self.random.choice(self.groups())
        if self.chance(0.25) and self.live():
            if group.pool.is_cells() and self.chance(0.7):
                return [self.draw_cell_event(group)]
            return [self.draw_remap(group)]
        return super().draw_row_event()

    def draw_cell_event(self, group: Group) -> Line:
        key = self.random.choice(self.live()) if not self.chance(self.noise) else self.next_key + 9
        request = self.judge.account.requests.get(key)
        columns = len(request.rows[group.index]) if request is not None else 3
        first = self.random.randint(0, columns + 1)
        count = self.random.randint(0, max(columns - first, 0))
        if self.chance(0.2):
            # beyond the row
            count += self.random.choice([1, 2, 5, 40])
        if self.chance(0.5):
            return erase(key, first, count, own=group.index)
        added = self.random.choice([-first, -first, -1, -2, 1, 2, 5])
        return rebase(key, first, count, self.blur(added), own=group.index)

    def draw_remap(self, group: Group) -> Line:
        """Pairs that are no malformed ones."""
        account = self.judge.account
        blocks = [b for b in range(group.pool.num_blocks) if not group.pool.is_null(b)]
        self.random.shuffle(blocks)
        held = [block for block in blocks if account.claims(group.pool, block)]
        free = [block for block in blocks if block not in held]
        reason = self.random.choice([MOVE, MOVE, SWAP, DEDUPE, DEDUPE])
        pairs: list[int] = []
        for old in held[: self.random.randint(1, 3)]:
            new = self.draw_target(group, reason, old, free, blocks)
            taken = pairs if reason == SWAP else pairs[1::2] if reason == MOVE else []
            if new is not None and new not in taken and (reason != SWAP or old not in pairs):
                pairs += [old, new]
        if self.chance(self.noise):
            pairs += [group.pool.num_blocks, 1]
        return remap(reason, *pairs, own=group.index)

    def draw_target(
        self, group: Group, reason: int, old: int, free: list[int], blocks: list[int]
    ) -> int | None:
        if reason == DEDUPE and not self.chance(0.2):
            # what others have in the same column
            columns = {
                column
                for request in self.judge.account.requests.values()
                for column, entry in enumerate(request.rows[group.index])
                if entry.block == old
            }
            others = [
                request.rows[group.index][column].block
                for request in self.judge.account.requests.values()
                for column in columns
                if column < len(request.rows[group.index])
            ]
            others = [block for block in others if block != old and block in blocks]
            return self.random.choice(others) if others else None
        return self.random.choice(free if free and self.chance(0.8) else blocks)

    def with_room(self, events: list[Line], rows: list[Line]) -> list[Line]:
        """Mostly as many columns as the schedule asks for, behind what the events have changed."""
        after = self.account_after(events)
        for row in rows:
            request = after.requests.get(row["request"])
            if request is None or self.chance(self.noise):
                continue
            most = request.count if self.judge.geometry.is_async() else request.high
            if not request.low <= row["num_computed"] <= most:
                row["num_computed"] = request.low
        self.after = after
        return super().with_room(events, rows)

    def account_after(self, events: list[Line]) -> Account:
        after = copy.deepcopy(self.judge.account)
        after.admitted_now, after.hits_made = set(), []
        for told in events:
            if told["kind"] not in ("zero", "copy", "zero-done", "copy-done"):
                apply_event(after, None, self.step, read_event(told))
        return after

    def columns_after(self, events: list[Line], key: int, group: Group) -> int:
        request = self.after.requests.get(key)
        return len(request.rows[group.index]) if request is not None else MOST_MORE

    # what a plan shows

    def add_pass(
        self, rows: list[DrawnRow], stage: str, pass_name: str = TARGET, index: int = 0
    ) -> None:
        self.pass_name = pass_name
        super().add_pass(rows, stage, pass_name, index)

    def is_shown(self, group: Group, pass_name: str) -> bool:
        if group.is_ring() and pass_name == MICRO_BATCH:
            return self.chance(0.3)
        return super().is_shown(group, pass_name)

    def draw_slot(self, group: Group, row: DrawnRow, position: int) -> int:
        clipped = group.is_ring() and position + group.window < row.start + row.tokens
        ahead = self.pass_name == DRAFT and self.chance(0.2)
        if clipped or ahead or self.chance(self.noise):
            return self.blur(self.draw_nothing(group))
        return super().draw_slot(group, row, position)

    def draw_nothing(self, group: Group) -> int:
        return self.random.choice([-1, group.pool.write_trash])

    def group_part(
        self, group: Group, rows: list[DrawnRow], pad_rows: int, pad_tokens: int
    ) -> Line:
        part = super().group_part(group, rows, pad_rows, pad_tokens)
        if part["slots"] is not None:
            slots = part["slots"]["values"]
            for index in range(len(slots) - pad_tokens, len(slots)):
                if slots[index] == -1:
                    slots[index] = self.draw_nothing(group)
        if not group.reads_by_list():
            return part
        reads = None if self.chance(self.noise) else self.draw_lists(group, rows)
        if reads is None:
            return {**part, "encoding": None, "reads": None}
        slots = part["slots"]["values"] if part["slots"] is not None else None
        return list_plan(group.encoding, reads, slots, group.index)

    def draw_lists(self, group: Group, rows: list[DrawnRow]) -> Line:
        lists = [self.draw_list(group, row) for row in rows]
        if group.encoding == FLAT and self.chance(0.2) and all(row.start == 0 for row in rows):
            lists = [[] for _ in rows]
        before = self.random.choice([0, 0, 0, 2])
        offsets = [before + sum(map(len, lists[:count])) for count in range(len(lists) + 1)]
        entries = [0] * before + [entry for listed in lists for entry in listed]
        right, offsets = offsets, [self.blur(offset) for offset in offsets]
        told: Line | None = array([min(max(offset, -1), LARGEST) for offset in offsets])
        entries = [min(max(entry, -(2**31)), LARGEST) for entry in entries]
        if group.encoding == FLAT:
            if not entries and self.chance(0.5):
                told = None
            return {"slots": array(entries, "i64"), "starts": told, "sentinel": self.sentinel()}
        pages = [self.blur(self.last_page(group, row)) for row in rows]
        # what the last page of a list that is none should be is not asked
        is_told = right == offsets and self.chance(0.5)
        last = array([max(page, 0) for page in pages]) if is_told else None
        return {"indptr": told, "indices": array(entries), "last_page_len": last}

    def sentinel(self) -> int:
        """The same in every plan of the stream."""
        return [-1, -2, 9000, 7][self.judge.geometry.max_model_len % 4]

    def read_length(self, row: DrawnRow) -> int:
        if self.pass_name == TARGET and row.known is not None:
            return row.start + row.known.scheduled.row.num_tokens
        return self.length_of(row, self.pass_name)

    def last_page(self, group: Group, row: DrawnRow) -> int:
        unit = group.entry_tokens()
        return (self.read_length(row) - 1) % unit + 1

    def draw_list(self, group: Group, row: DrawnRow) -> list[int]:
        if row.known is None:
            return []
        listed = []
        if group.is_ring():
            at_hand = range(row.start, row.start + row.tokens)
            positions = [*range(first_read(group, row.start), row.start), *at_hand]
        else:
            positions = list(range(0, self.read_length(row), group.entry_tokens()))
            positions = [p for p in positions if not is_hole_at(group, row.known, p)]
        for position in positions:
            right = right_entry(group, row.known, position)
            own = position >= row.start and group.encoding == FLAT
            if (own and (group.is_ring() or self.chance(0.3))) or self.chance(self.noise / 4):
                listed.append(self.blur(self.sentinel()))
            else:
                listed.append(self.blur(min(right, default=0)))
        if listed and self.chance(self.noise):
            change = self.random.choice([listed.pop, lambda: listed.append(3), listed.reverse])
            change()
        return listed


def draw_layouts(seed: int, steps: int = 8) -> list[Line]:
    """The same seed, the same stream."""
    random = Random(seed)
    line = draw_engine(random)
    stream = LayoutStream(random, line, random.choice([True, False]), random.choice([True, False]))
    for _ in range(steps):
        stream.draw_step()
    return stream.lines


def draw_ring_turns(seed: int, steps: int = 60) -> list[Line]:
    """A request whose count goes back and forth, by steps of which not all are sure: what its
    rings hold is written in many pieces. Of a plan only the starts of its rows are shown."""
    random = Random(seed)
    groups = [
        ring_group("table", random.choice([1, 3, 4, 6, 9, 14, 24]), id=index, max_columns=0)
        for index in range(random.choice([1, 1, 2]))
    ]
    flags, length = random.choice([0, ASYNC]), random.choice([0, 0, 48])
    line = engine(*groups, flags=flags, max_model_len=length)
    first = random.choice([0, 0, 7])
    judge = Judge(read_geometry(line))
    lines = [line]

    def add(record: Line) -> None:
        lines.append(record)
        judge.feed(read_record(record))

    often = random.choice([0.1, 0.3, 0.7])
    # from some step on it goes no further: what it reads is older than its latest 16 runs
    stays_at = random.choice([steps, steps // 3])
    events = admit(1, *[list(range(1 + 6 * index, 7 + 6 * index)) for index in range(len(groups))])
    events[0].update(first=first, count=first)
    for number in range(1, steps + 1):
        request = judge.account.requests.get(1)
        low, count = (request.low, request.count) if request is not None else (first, first)
        in_place = number > stays_at
        if number > 1:
            events = []
            if in_place or random.random() < often:
                back = random.randint(0, min(count, random.choice([2, 30])))
                back = min(count, random.choice([1, 1, 1, 2])) if in_place else back
                events.append(event("rollback", 1, count=back))
                low, count = max(low - back, 0), max(count - back, 0)
            if random.random() < 0.03:
                kind, own = random.choice(["truncate", "replace"]), random.randrange(len(groups))
                blocks = [1 + 6 * own] if kind == "replace" else []
                events.append(event(kind, 1, own, first=random.randrange(8), blocks=blocks))
        computed = random.choice([count, count, count, low, random.randint(min(low, count), count)])
        tokens = 1 if in_place else random.choice([1, 1, 1, 2, 5, 11])
        add(begin(number, events, [scheduled(1, tokens, computed)]))
        assert judge.step is not None
        told = judge.step.scheduled[1]
        start = random.randint(told.start_low, told.start_high)
        add(plan(number, [1], [0, tokens], [start + tokens]))
        flags = random.choice([0] * 8 + [END_ABANDONED, END_NO_FORWARD])
        add(end(number, flags if random.random() < 2 * often else 0))
    return lines
