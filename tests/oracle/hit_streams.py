# SPDX-License-Identifier: Apache-2.0
"""Small random streams of prefix hits and loads: few blocks, few tokens, no plans.

`random_streams.py` draws what an engine might nearly do; here nearly every block is somebody's, so
that a hit meets a passed claim, a forgotten home or a load that nobody knows within a few steps. No
request names one block twice: whose content it is then hangs on which of the claims ends first.
"""

from __future__ import annotations

from random import Random

from scenario import (
    ASYNC,
    CONNECTOR,
    Line,
    admit,
    append,
    begin,
    end,
    event,
    geometry,
    group,
    outcome,
    pool,
    scheduled,
    transfer,
)

BLOCKS = range(1, 9)
BLOCK_SIZE = 4
KINDS = [{}, {"kind": "window", "window": 1}, {"kind": "window", "window": 5},
         {"kind": "chunked", "window": 8}]  # fmt: skip


class HitStream:
    """Draws records one after another; `lines` is what was drawn."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        groups = [group(id=index, **self.random.choice(KINDS)) for index in range(self.pick(1, 2))]
        flags = self.random.choice([0, ASYNC, ASYNC, CONNECTOR, ASYNC | CONNECTOR])
        pools = [pool(num_blocks=len(BLOCKS) + 1)]
        self.lines = [geometry(groups, pools, flags=flags, max_model_len=0)]
        self.num_groups = len(groups)
        # live requests and the tokens that are computed, if every draft is accepted
        self.computed: dict[int, int] = {}
        # of every request: the rows that it was admitted with, and what it has not named yet
        self.rows: dict[int, list[list[int]]] = {}
        self.unnamed: dict[int, list[int]] = {}
        # transfers that have not ended
        self.loading: list[int] = []
        self.next_id = 1

    def pick(self, *choices: int) -> int:
        return self.random.choice(choices)

    def draw_blocks(self, key: int, count: int) -> list[int]:
        unnamed = self.unnamed[key]
        self.random.shuffle(unnamed)
        return [unnamed.pop() for _ in range(min(count, len(unnamed)))]

    def draw_row(self, key: int, index: int, columns: int) -> list[int]:
        """As far as another request has them, half of the time: its blocks, in their columns."""
        found: list[int] = []
        if self.rows and self.pick(0, 1):
            found = self.rows[self.pick(*self.rows)][index][:columns]
        row = []
        for block in found:
            if block not in self.unnamed[key]:
                break
            self.unnamed[key].remove(block)
            row.append(block)
        return row + self.draw_blocks(key, columns - len(row))

    def draw_tokens(self, count: int) -> list[int]:
        """Mostly alike, so that most readers have what they read."""
        return [self.pick(7, 7, 7, 7, 7, 7, 7, 8) for _ in range(count)]

    def draw_admission(self) -> list[Line]:
        """Hits, new blocks, and last tokens that are computed again."""
        key = len(self.unnamed) + 1
        self.unnamed[key] = list(BLOCKS)
        columns = self.random.randint(1, 3)
        known = columns * BLOCK_SIZE
        count = self.pick(known, known, known + 1)
        first = self.pick(known - 1, known - 1, known, known, known - BLOCK_SIZE, 0)
        rows = [self.draw_row(key, i, columns + self.pick(0, 1)) for i in range(self.num_groups)]
        self.rows[key] = rows
        events = admit(key, *rows, first=first, count=count)
        if self.random.random() < 0.6:
            events[0]["tokens"] = self.draw_tokens(count)
        if self.random.random() < 0.1:
            events.append(event("domain", key, other=1, value=1, first=self.pick(0, 4), count=4))
        self.computed[key] = first
        return events

    def draw_load(self) -> list[Line]:
        id_, self.next_id = self.next_id, self.next_id + 1
        # of a live request, of the one that comes next, or of nobody
        request = self.pick(0, len(self.unnamed) + 1, *self.computed, *self.computed)
        column = self.pick(0, 0, 1, 2)
        # mostly what the request was admitted with
        row = self.rows[request][0] if request in self.rows else []
        block = row[column] if column < len(row) and self.pick(0, 1, 1) else self.pick(*BLOCKS)
        self.loading.append(id_)
        return [transfer("load", id_, block, request=request, first=BLOCK_SIZE * column)]

    def draw_load_end(self) -> list[Line]:
        if not self.loading:
            return []
        id_ = self.loading.pop(self.random.randrange(len(self.loading)))
        return [transfer(self.random.choice(["load-done", "load-done", "load-failed"]), id_)]

    def draw_events(self) -> list[Line]:
        kind = self.random.choices(["admit", "leave", "append", "cut", "load"], [6, 2, 1, 1, 3])[0]
        if kind == "load":
            return self.draw_load() + (self.draw_load_end() if self.pick(0, 1) else [])
        if kind == "admit" or not self.computed:
            return self.draw_admission()
        key = self.pick(*self.computed)
        index = self.random.randrange(self.num_groups)
        if kind == "append":
            return [append(key, *self.draw_blocks(key, 1), group=index)]
        if kind == "cut":
            return [event("truncate", key, index, first=self.pick(0, 1, 2))]
        del self.computed[key]
        return [event(self.random.choice(["finish", "preempt"]), key)]

    def draw_rows(self) -> list[Line]:
        rows = []
        for key in self.computed:
            if self.pick(0, 1, 1):
                drafts = self.pick(0, 1, 2)
                tokens = drafts + self.random.randint(1, 4)
                rows.append(scheduled(key, tokens, self.computed[key], drafts))
                self.computed[key] += tokens
        return rows

    def draw_outcome(self, step: int, rows: list[Line]) -> Line:
        told = outcome(step, events=self.draw_load_end() if self.pick(0, 1) else [])
        for row in rows:
            rejected = self.random.randint(0, row["num_drafts"])
            self.computed[row["request"]] -= rejected
            part = outcome(step, (row["request"], rejected))["rows"][0]
            tokens = self.draw_tokens(row["num_drafts"] - rejected + 1)
            part |= {"tokens": tokens, "num_tokens": len(tokens), "num_sampled": len(tokens)}
            told["rows"].append(part)
        return told

    def draw_step(self, step: int) -> None:
        events = self.draw_load_end() if self.pick(0, 1) else []
        for _ in range(self.random.randint(1, 3)):
            events += self.draw_events()
        rows = self.draw_rows()
        self.lines.append(begin(step, events, rows))
        told = self.draw_outcome(step, rows) if self.pick(0, 1) else None
        within = bool(self.pick(0, 0, 1))
        if told is not None and within:
            self.lines.append(told)
        self.lines.append(end(step))
        if told is not None and not within:
            self.lines.append(told)


def draw_hits(seed: int) -> list[Line]:
    """The same seed, the same stream."""
    stream = HitStream(seed)
    for step in range(1, stream.random.randint(4, 9)):
        stream.draw_step(step)
    return stream.lines
