# SPDX-License-Identifier: Apache-2.0
"""Random streams of engines with more than attention: states, encoders, pools of the host, and
steps of several passes. As random_streams.py draws the others, beside an oracle.
"""

from __future__ import annotations

from random import Random

from kvguard_oracle.cross import encoder_tokens
from kvguard_oracle.drafts import start_bounds
from kvguard_oracle.geometry import CROSS, MODE_ALIGN, MODE_ALL, MODE_NONE, STATE, Group
from kvguard_oracle.passes import MICRO_BATCH, TARGET
from kvguard_oracle.states import column_of_state, last_column, place, stored_place
from pass_scenario import ENCODER, FILLS_TOLD
from random_streams import DrawnRow, Stream, draw_geometry, draw_kind
from scenario import Line, event, group, group_plan, outcome, pool, state_plan

MODES = [MODE_NONE, MODE_ALL, MODE_ALIGN]
MOST_ENCODER_TOKENS = 10
# columns that one record appends to a row
MOST_MORE = 12


def draw_group(random: Random, kind: str, index: int, where: int) -> Line:
    block_size = random.choice([1, 2, 4])
    fields = {"id": index, "pool": where, "block_size": block_size, "kernel_block_size": block_size}
    if kind == STATE:
        mode = random.choice(MODES)
        encoding = random.choice(["state", "state", "table"])
        return group(kind=kind, state_mode=mode, encoding=encoding, max_columns=0, **fields)
    if kind == CROSS:
        return group(kind=kind, max_columns=random.choice([0, 3]), **fields)
    return group(max_columns=0, **fields, **draw_kind(random, windows=True))


def draw_engine(random: Random) -> Line:
    """Attention of any kind, and some groups that are not."""
    line = draw_geometry(random, windows=True)
    for described in line["pools"]:
        described["num_blocks"] += 8
    kinds = random.choice([[STATE], [STATE], [CROSS], [], [STATE, CROSS], [STATE, STATE]])
    for kind in kinds:
        where = random.randrange(len(line["pools"]))
        line["groups"].append(draw_group(random, kind, len(line["groups"]), where))
    if random.choice([True, False, False]):
        where = len(line["pools"])
        line["pools"].append(pool(id=where, num_blocks=10, memory="host"))
        kind = random.choice(["", "", STATE, CROSS])
        line["groups"].append(draw_group(random, kind, len(line["groups"]), where))
    line["flags"] |= random.choice([0, 0, FILLS_TOLD])
    if any(described["state_mode"] == MODE_ALL for described in line["groups"]):
        line["max_drafts"] = 0
    return line


class PassStream(Stream):
    """Steps of a target pass, or of its parts, and draft and cross-attention passes."""

    def __init__(self, random: Random, line: Line, transfers: bool, contents: bool) -> None:
        super().__init__(random, line, transfers, contents, line["dcp_size"] > 1)
        # of the request that is admitted next
        self.encoder = 0

    # what a BEGIN says

    def admission(self) -> list[Line]:
        self.encoder = 0
        if any(group.is_cross() for group in self.groups()) and self.chance(0.7):
            self.encoder = self.random.randint(1, MOST_ENCODER_TOKENS)
        events = super().admission()
        if self.encoder:
            key = events[0]["request"]
            first = self.random.choice([0, 0, 0, 2])
            count = max(self.encoder - first, 0)
            events.append(event("domain", key, other=ENCODER, value=key, first=first, count=count))
        return events

    def draw_row(self, group: Group, shared: int | None, first: int) -> list[int]:
        if group.is_cross():
            columns = max(self.blur(group.columns_for(self.encoder)), 0)
            return [self.draw_block(group) for _ in range(min(columns, MOST_MORE))]
        if not group.is_state():
            return super().draw_row(group, shared, first)
        if shared is None or first == 0 or group.state_mode == MODE_NONE:
            return [self.draw_block(group) for _ in range(self.random.randrange(3))]
        # one state is a hit, those before it are not kept
        column = min(column_of_state(group, first), MOST_MORE)
        row = self.judge.account.requests[shared].rows[group.index]
        hit = row[column].block if column < len(row) else self.draw_block(group)
        return [group.pool.null_block] * column + [hit]

    def with_room(self, events: list[Line], rows: list[Line]) -> list[Line]:
        """Mostly as many columns as the schedule asks for."""
        more = []
        for row in rows:
            for part in self.groups():
                if part.is_cross() or self.chance(0.1):
                    continue
                have = self.columns_after(events, row["request"], part)
                missing = self.columns_wanted(row, part) - have
                if not 0 < missing <= MOST_MORE:
                    continue
                blocks = [self.draw_room(part, row, have + i) for i in range(missing)]
                more.append(event("append", row["request"], part.index, blocks=blocks))
        return [*events, *more]

    def columns_wanted(self, row: Line, group: Group) -> int:
        end = row["num_computed"] + row["num_tokens"]
        if group.is_state() and group.state_mode == MODE_NONE:
            return 1 + row["num_drafts"]
        drafts = row["num_drafts"] if group.is_state() else 0
        return group.columns_for(end) + drafts

    def columns_after(self, events: list[Line], key: int, group: Group) -> int:
        request = self.judge.account.requests.get(key)
        columns = len(request.rows[group.index]) if request is not None else 0
        for told in events:
            if told["request"] != key or told["group"] != group.index:
                continue
            if told["kind"] == "truncate":
                columns = min(columns, told["first"])
            elif told["kind"] in ("append", "replace"):
                before = columns if told["kind"] == "append" else 0
                columns = before + len(told["blocks"])
        return columns

    def draw_room(self, group: Group, row: Line, column: int) -> int:
        """States stand at the end; the columns before it are not kept."""
        if not group.is_state() or not group.forgets() or not group.pool.has_null_block():
            return self.draw_block(group)
        end = column_of_state(group, row["num_computed"] + row["num_tokens"])
        kept = column >= end or group.state_mode == MODE_ALL
        return self.draw_block(group) if kept or self.chance(0.2) else group.pool.null_block

    def draw_failed(self, blocks: list[int]) -> list[int]:
        """In part, mostly."""
        return [block for block in blocks if self.chance(0.6)]

    # what a plan shows

    def length_of(self, row: DrawnRow, pass_name: str) -> int:
        longest = self.judge.geometry.max_model_len
        if pass_name == "draft" and longest:
            return min(row.start + row.tokens, longest)
        if pass_name == CROSS and row.known is not None:
            return encoder_tokens(row.known.request)
        return row.start + row.tokens

    def is_shown(self, group: Group, pass_name: str) -> bool:
        if self.chance(self.noise):
            return self.chance(0.5)
        if group.pool.is_host():
            return self.chance(0.1)
        if group.is_cross() or pass_name == CROSS:
            return group.is_cross() and pass_name == CROSS
        if group.is_state() and pass_name == "draft":
            return False
        return pass_name != "draft" or self.chance(0.8)

    def group_part(
        self, group: Group, rows: list[DrawnRow], pad_rows: int, pad_tokens: int
    ) -> Line:
        part = super().group_part(group, rows, pad_rows, pad_tokens)
        if not group.is_state():
            return part
        if self.chance(0.2):
            return group_plan(
                part["reads"]["table"]["rows"], None, group.index, part["reads"]["table"]["columns"]
            )
        starts = [self.blur(self.draw_start_state(group, row)) for row in rows]
        ends = [self.blur(self.end_state(group, row)) for row in rows]
        init = [int((row.start == 0) != self.chance(self.noise)) for row in rows]
        idle = [self.blur(max(group.pool.null_block, -1)) for _ in range(pad_rows)]
        return state_plan(
            None if self.chance(0.05) else starts + idle,
            None if self.chance(0.05) else ends + idle,
            None if self.chance(0.2) else init + [0] * pad_rows,
            group.index,
        )

    def block_in(self, group: Group, row: DrawnRow, column: int | None) -> int:
        assert row.known is not None
        entries = row.known.request.rows[group.index]
        if column is None or not 0 <= column < len(entries):
            return -1
        return min(max(entries[column].block, -1), 2**31 - 1)

    def draw_start_state(self, group: Group, row: DrawnRow) -> int:
        """Where it stands; where it may stand too; or where it was copied, said or not."""
        if row.known is None:
            return -1
        standing = place(row.known.request, group, row.start)
        choices = [standing, standing, standing, stored_place(row.known.request, group, row.start)]
        end = row.start + row.known.scheduled.row.num_tokens
        if group.state_mode == MODE_ALIGN:
            choices.append(column_of_state(group, end))
        column = self.random.choice([choice for choice in choices if choice is not None] or [None])
        return self.block_in(group, row, column)

    def end_state(self, group: Group, row: DrawnRow) -> int:
        if row.known is None:
            return -1
        column = last_column(group, row.known.scheduled.row, row.start)
        return self.block_in(group, row, column)

    def draw_state_copies(self) -> None:
        """COPY_DONE of states that stand in another column than the one that goes on."""
        step = self.judge.step
        assert step is not None
        for part in self.groups():
            if not part.is_state() or part.state_mode != MODE_ALIGN or self.chance(0.5):
                continue
            blocks = []
            for key, told in step.scheduled.items():
                row = self.row_of(key, told.start_low, told.row.num_tokens)
                if row.known is None:
                    continue
                source = self.block_in(part, row, place(row.known.request, part, row.start))
                end = column_of_state(part, row.start + row.tokens)
                target = self.block_in(part, row, end)
                if source != target and min(source, target) >= 0:
                    blocks += [source, self.blur(target)]
            if blocks:
                done = event("copy-done", 0, part.index, blocks=blocks)
                self.add(outcome(self.step, events=[done]))

    # passes

    def draw_plan(self, stage: str) -> None:
        if self.transfers and stage == "planned":
            self.draw_state_copies()
        rows = self.draw_rows_of_target()
        if self.chance(0.4):
            self.draw_parts(rows, stage)
        else:
            self.add_pass(rows, stage, TARGET)
        if any(group.is_cross() for group in self.groups()) and not self.chance(0.1):
            self.draw_cross(stage)
        if self.chance(0.4):
            for index in range(self.random.randint(1, 4)):
                self.draw_draft(index, stage)

    def draw_parts(self, rows: list[DrawnRow], stage: str) -> None:
        """Each row in one part or in two, in two or three micro-batches."""
        batches: list[list[DrawnRow]] = [[] for _ in range(self.random.randint(1, 3))]
        for row in rows:
            cut = self.random.randint(1, row.tokens) if self.chance(0.5) else row.tokens
            first = self.random.randrange(len(batches))
            batches[first].append(self.row_of(row.key, row.start, cut))
            rest = row.tokens - cut
            if not rest or self.chance(self.noise):
                continue
            later = self.random.randrange(len(batches))
            if later == first:
                batches.append([])
                later = len(batches) - 1
            batches[later].append(self.row_of(row.key, row.start + cut, rest))
        for index, batch in enumerate(batches):
            self.add_pass(batch, stage, MICRO_BATCH, index)

    def draw_cross(self, stage: str) -> None:
        step = self.judge.step
        assert step is not None
        rows = []
        for key in step.scheduled:
            request = self.judge.account.requests.get(key)
            if request is None:
                continue
            written = request.encoder_written and not self.chance(0.2)
            tokens = 0 if written else encoder_tokens(request)
            rows.append(self.row_of(key, 0, max(self.blur(tokens), 0) % 64))
        if sum(row.tokens for row in rows) <= 56:
            self.add_pass(rows, stage, CROSS)

    def draw_draft(self, index: int, stage: str) -> None:
        step = self.judge.step
        assert step is not None
        rows = []
        for key, told in step.scheduled.items():
            if self.chance(0.2):
                continue
            if index == 0:
                start, tokens = self.true_start(told), told.row.num_tokens
            else:
                lowest, highest = start_bounds(self.judge.geometry, told, index)
                start, tokens = self.random.randint(lowest, highest), self.random.choice([1, 1, 2])
            rows.append(self.row_of(key, start, tokens))
        self.add_pass(rows, stage, "draft", index)


def draw_passes(seed: int, steps: int = 8) -> list[Line]:
    """The same seed, the same stream."""
    random = Random(seed)
    line = draw_engine(random)
    stream = PassStream(random, line, random.choice([True, False]), random.choice([True, False]))
    for _ in range(steps):
        stream.draw_step()
    return stream.lines
