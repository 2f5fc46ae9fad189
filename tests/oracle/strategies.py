# SPDX-License-Identifier: Apache-2.0
"""What Hypothesis draws: small geometries, streams beside an account, and streams beside nothing.

Everything is drawn from small numbers, simplest first, so that what fails becomes small.
"""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st
from kvguard_oracle.geometry import GROUP_REPLICATED
from pass_scenario import FILLS_TOLD
from pass_streams import PassStream
from random_streams import Stream
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
    state_plan,
)

FULL, WINDOW, CHUNKED, STATE, CROSS = "full", "window", "chunked", "state", "cross"
MODES = st.sampled_from([0, 1, 2])


@st.composite
def groups(draw, index, num_pools, ranks, interleave):
    kernel = draw(st.sampled_from([1, 2, 4])) * interleave
    kind = draw(st.sampled_from([FULL, WINDOW, CHUNKED]))
    fields = {} if kind == FULL else {"kind": kind, "window": draw(st.integers(1, 9))}
    if kind == WINDOW:
        fields |= {"sink": draw(st.integers(0, 5)), "retained": draw(st.integers(0, 2))}
    flags = draw(st.sampled_from([0, PAD_ROWS_NULL]))
    if ranks > 1:
        flags |= draw(st.sampled_from([0, GROUP_REPLICATED]))
    return group(
        id=index,
        pool=draw(st.integers(0, num_pools - 1)),
        block_size=kernel * draw(st.integers(1, 3)),
        kernel_block_size=kernel,
        table_unit=draw(st.sampled_from(["block", "kernel_block"])),
        flags=flags,
        max_columns=draw(st.sampled_from([0, 3, 8])),
        **fields,
    )


@st.composite
def other_groups(draw, index, num_pools, interleave):
    """States, or the output of encoders."""
    kind = draw(st.sampled_from([STATE, CROSS]))
    block_size = draw(st.sampled_from([1, 2, 4])) * interleave
    fields = {}
    if kind == STATE:
        fields = {"state_mode": draw(MODES), "encoding": draw(st.sampled_from(["state", "table"]))}
    return group(
        id=index,
        pool=draw(st.integers(0, num_pools - 1)),
        kind=kind,
        block_size=block_size,
        kernel_block_size=block_size,
        max_columns=draw(st.sampled_from([0, 3, 8])),
        **fields,
    )


@st.composite
def geometries(draw, others=False):
    """One group or some, in one pool or some, on one rank or some.

    `others`: also groups that are no attention to a request's own tokens, and pools of the host.
    """
    num_pools = draw(st.integers(1, 2))
    pools = [
        pool(
            id=index,
            num_blocks=draw(st.integers(4, 12)),
            null_block=draw(st.sampled_from([0, 2, -1])),
        )
        for index in range(num_pools)
    ]
    if others and draw(st.booleans()):
        pools.append(pool(id=num_pools, num_blocks=8, memory="host"))
        num_pools += 1
    ranks = draw(st.sampled_from([1, 1, 2, 3]))
    interleave = draw(st.integers(1, 2)) if ranks > 1 else 1
    drawn = [
        draw(groups(index, num_pools, ranks, interleave))
        for index in range(draw(st.integers(1, 3)))
    ]
    flags = draw(st.sampled_from([0, ASYNC, CONNECTOR, ASYNC | CONNECTOR]))
    drafts = 4
    if others:
        for _ in range(draw(st.integers(1, 2))):
            drawn.append(draw(other_groups(len(drawn), num_pools, interleave)))
        flags |= draw(st.sampled_from([0, FILLS_TOLD]))
        # beside a group of states in mode all there are none
        drafts = 0 if any(part["state_mode"] == 1 for part in drawn) else 4
    return geometry(
        drawn,
        pools,
        flags=flags,
        max_drafts=drafts,
        max_model_len=draw(st.sampled_from([0, 6, 16, 64])),
        max_rows=16,
        max_tokens=64,
        dcp_size=ranks,
        dcp_rank=draw(st.integers(0, ranks - 1)),
        interleave=interleave,
    )


class DrawnRandom(Random):
    """What Stream asks of a Random, drawn by Hypothesis: simplest is the first choice, the lowest
    number, and that what happens with some probability does not happen.

    Hypothesis' own randoms() are simplest where everything happens: streams without an end.
    """

    def __init__(self, draw) -> None:
        super().__init__(0)
        self.draw = draw

    def random(self) -> float:
        return 1 - self.draw(st.integers(0, 999)) / 1000

    def randrange(self, start: int, stop: int | None = None) -> int:
        return self.randint(0, start - 1) if stop is None else self.randint(start, stop - 1)

    def randint(self, first: int, last: int) -> int:
        return self.draw(st.integers(first, last))

    def choice(self, values):
        return values[self.randrange(len(values))]

    def sample(self, values, count: int):
        left = list(values)
        return [left.pop(self.randrange(len(left))) for _ in range(count)]

    def shuffle(self, values) -> None:
        values[:] = self.sample(values, len(values))


@st.composite
def streams(draw, most_steps=4):
    """Most numbers are near to what is right: drawn beside an oracle (random_streams.py)."""
    line = draw(geometries())
    transfers, contents = draw(st.booleans()), draw(st.booleans())
    stream = Stream(DrawnRandom(draw), line, transfers, contents, line["dcp_size"] > 1)
    stream.noise = draw(st.sampled_from([0.0, 0.02, 0.1]))
    for _ in range(draw(st.integers(1, most_steps))):
        stream.draw_step()
    return stream.lines


@st.composite
def pass_streams(draw, most_steps=3):
    """The same of engines with other groups, and of steps with other passes (pass_streams.py)."""
    line = draw(geometries(others=True))
    stream = PassStream(DrawnRandom(draw), line, draw(st.booleans()), draw(st.booleans()))
    stream.noise = draw(st.sampled_from([0.0, 0.02, 0.1]))
    for _ in range(draw(st.integers(1, most_steps))):
        stream.draw_step()
    return stream.lines


# beside nothing: any request, block, length and slot, in any order

KEYS = st.integers(1, 3)
BLOCKS = st.lists(st.integers(-1, 8), max_size=3)
SMALL = st.integers(0, 9)
IDS = st.integers(1, 3)


@st.composite
def events(draw, num_groups):
    kind = draw(
        st.sampled_from(
            ["admit", "append", "replace", "truncate", "rollback", "finish", "preempt", "domain",
             "free", "zero", "zero-done", "copy", "copy-done", "reserve", "load", "load-done",
             "load-failed", "send-pending", "send-done", "cancel", "drain", "gap"]
        )
    )  # fmt: skip
    where = draw(st.integers(0, num_groups - 1))
    tokens = st.lists(st.integers(0, 2), max_size=6)
    if kind == "admit":
        fields = {"first": draw(SMALL), "count": draw(SMALL), "tokens": draw(tokens)}
        return event(kind, draw(KEYS), **fields)
    if kind in ("append", "replace"):
        return event(kind, draw(KEYS), where, blocks=draw(BLOCKS))
    if kind == "truncate":
        return event(kind, draw(KEYS), where, first=draw(SMALL))
    if kind == "rollback":
        return event(kind, draw(KEYS), count=draw(SMALL))
    if kind in ("finish", "preempt"):
        return event(kind, draw(KEYS))
    if kind == "domain":
        # ENCODER is 4
        kinds = st.sampled_from([1, 2, 3, 4, 4, 5])
        fields = {
            "other": draw(kinds),
            "value": draw(IDS),
            "first": draw(SMALL),
            "count": draw(IDS),
        }
        return event(kind, draw(KEYS), **fields)
    if kind == "gap":
        return event(kind, name="drawn")
    if kind in ("copy", "copy-done"):
        return event(kind, 0, where, blocks=[draw(st.integers(-1, 8)) for _ in range(2)])
    if kind in ("free", "zero", "zero-done"):
        return event(kind, 0, where, blocks=draw(BLOCKS))
    fields = {"value": draw(IDS), "blocks": draw(BLOCKS)}
    if kind == "load":
        fields["first"] = draw(SMALL)
    return event(kind, draw(st.integers(0, 3)), where, **fields)


@st.composite
def begins(draw, step, num_groups, most_drafts=4):
    rows = draw(st.lists(st.tuples(KEYS, st.integers(1, 6), SMALL, st.integers(0, 2)), max_size=3))
    told = draw(st.lists(events(num_groups), max_size=6))
    # of the tokens, drafts
    drafts = [min(d, q, most_drafts) for _, q, _, d in rows]
    told_rows = zip(rows, drafts, strict=True)
    return begin(step, told, [scheduled(key, q, c, d) for (key, q, c, _), d in told_rows])


@st.composite
def plans(draw, step, described):
    num_rows = draw(st.integers(0, 3))
    starts = [draw(st.integers(0, 6)) for _ in range(num_rows + 1)]
    if draw(st.booleans()):
        starts = [0, *sorted(starts[1:])]
    num_tokens = starts[-1]
    padded_rows, padded_tokens = num_rows + draw(st.integers(0, 1)), num_tokens + draw(IDS)

    def numbers(count, least=-1, most=12):
        return draw(st.lists(st.integers(least, most), min_size=count, max_size=count))

    parts = []
    for index, part in enumerate(described):
        if part["kind"] == STATE and draw(st.booleans()):
            drawn = [numbers(padded_rows) if draw(st.booleans()) else None for _ in range(2)]
            init = numbers(padded_rows, 0, 1) if draw(st.booleans()) else None
            parts.append(state_plan(*drawn, init, index))
        elif draw(st.booleans()):
            columns = draw(st.integers(0, 4))
            table = [numbers(columns, -2) for _ in range(padded_rows)]
            counts = numbers(num_rows) if draw(st.booleans()) else None
            lengths = numbers(num_rows) if draw(st.booleans()) else None
            slots = numbers(padded_tokens, -2, 40) if draw(st.booleans()) else None
            parts.append(group_plan(table, slots, index, columns, counts, lengths))
    passes = ["target"] * 5 + ["dummy"]
    if any(part["kind"] in (STATE, CROSS) for part in described):
        passes += ["micro-batch", "micro-batch", "draft", "draft", "cross", "cross"]
    line = plan(
        step,
        [draw(KEYS) for _ in range(num_rows)],
        starts,
        numbers(padded_rows),
        *parts,
        positions=numbers(num_tokens) if draw(st.booleans()) else None,
        num_computed=numbers(num_rows) if draw(st.booleans()) else None,
        stage=draw(st.sampled_from(["planned", "final"])),
        pass_name=draw(st.sampled_from(passes)),
        pass_index=draw(st.integers(0, 3)),
    )
    return {**line, "padded_rows": padded_rows, "padded_tokens": padded_tokens}


@st.composite
def outcomes(draw, step, num_groups):
    line = outcome(step)
    for _ in range(draw(st.integers(0, 2))):
        tokens = draw(st.lists(st.integers(0, 2), max_size=2))
        line["rows"].append(
            {
                "request": draw(KEYS),
                "num_sampled": len(tokens),
                "num_rejected": draw(st.integers(0, 2)),
                "num_tokens": len(tokens),
                "tokens": tokens,
            }
        )
    told = [
        told
        for told in draw(st.lists(events(num_groups), max_size=2))
        if told["kind"] in OUTCOME_EVENTS
    ]
    return {**line, "events": told}


OUTCOME_EVENTS = {
    "zero-done", "copy-done", "reserve", "load", "load-done", "load-failed", "send-pending",
    "send-done", "cancel", "drain", "gap",
}  # fmt: skip


@st.composite
def arbitrary_streams(draw, most_records=10):
    """Records of any kind after any other; mostly of the step that is open."""
    line = draw(geometries(others=draw(st.booleans())))
    described = line["groups"]
    num_groups = len(described)
    lines, step = [line], draw(st.sampled_from([1, 0]))
    for _ in range(draw(st.integers(1, most_records))):
        kind = draw(st.sampled_from(["begin", "plan", "end", "outcome", "begin", "plan", "reset"]))
        if kind == "begin":
            step += draw(st.sampled_from([1, 1, 1, 1, 1, 0]))
            lines.append(draw(begins(step, num_groups, line["max_drafts"])))
        elif kind == "plan":
            lines.append(draw(plans(step, described)))
        elif kind == "outcome":
            told = max(step - draw(st.sampled_from([0, 0, 1, 2])), 0)
            lines.append(draw(outcomes(told, num_groups)))
        elif kind == "end":
            lines.append(end(step, draw(st.sampled_from([0, 0, 0, 1, 2]))))
        else:
            lines.append(reset())
    return lines


def malformed(step: int) -> st.SearchStrategy[Line]:
    """A record of a step that was begun and that nobody may take."""
    short = {**plan(step, [1], [0, 1], [1]), "seq_lens": array([])}
    return st.sampled_from(
        [
            short,
            {**short, "seq_lens": array([1]), "padded_tokens": 0},
            {**short, "seq_lens": array([1]), "padded_rows": 0},
            plan(step, [1], [0, 1], [1], group_plan(None, [4], group=77)),
            plan(step, [1], [0, 1], [1], group_plan(None, [])),
            outcome(step, (0, 0)),
            outcome(step, events=[event("admit", 50)]),
            outcome(step, events=[event("load", 1, 0, value=9, first=-1, blocks=[1])]),
        ]
    )
