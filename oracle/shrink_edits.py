# SPDX-License-Identifier: Apache-2.0
"""Edits that make a program (a geometry line and its records) smaller or plainer.

Each gives a new program and leaves its own as it was. None of them knows a rule: whether a smaller
program still shows what it should is asked of the judges. Edits only keep the arrays of a record
consistent, so that most of what they give is well formed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Line = dict[str, Any]
Program = list[Line]
# of a list inside the program, and an index in it
Part = tuple[tuple[str | int, ...], int]
Edit = Callable[[Program], Program]

# not lists of the line: a plan's rows and tokens are spread over its arrays, and so are its lists
PLAN_ROWS = "plan rows"
PLAN_TOKENS = "plan tokens"
LIST_ENTRIES = "list entries"
# which of a plan's counts says how many there are
PLAN_COUNTS = {PLAN_ROWS: "num_rows", PLAN_TOKENS: "num_tokens"}


def clone(program: Program) -> Program:
    return json.loads(json.dumps(program))


def at(program: Program, path: Iterable[str | int]) -> Any:
    value: Any = program
    for key in path:
        value = value[key]
    return value


def begins(program: Program) -> list[int]:
    return [i for i, line in enumerate(program) if line["record"] == "begin"]


def records_with(program: Program, name: str) -> Iterator[tuple[int, list[Any]]]:
    """Index and list of each record that has a list of this name."""
    for index, line in enumerate(program):
        if index and isinstance(line.get(name), list):
            yield index, line[name]


# parts


def parts(program: Program, kind: str) -> list[Part]:
    """What `without` may leave out: events, scheduled, rows (of outcomes), groups (of plans), the
    blocks of events, a plan's rows and tokens."""
    if kind in PLAN_COUNTS:
        return [
            ((index, kind), at_)
            for index, line in enumerate(program)
            if line["record"] == "plan" and has_plain_rows(line)
            for at_ in range(line[PLAN_COUNTS[kind]])
        ]
    if kind == LIST_ENTRIES:
        return [
            ((index, "groups", at_, LIST_ENTRIES), entry)
            for index, listed in records_with(program, "groups")
            for at_, part in enumerate(listed)
            for entry in range(len(list_arrays(part)[1]))
        ]
    if kind == "blocks":
        return [
            ((index, "events", at_, "blocks"), block)
            for index, events in records_with(program, "events")
            for at_, event in enumerate(events)
            for block in range(len(event["blocks"]))
        ]
    return [
        ((index, kind), at_)
        for index, listed in records_with(program, kind)
        for at_ in range(len(listed))
    ]


def without(program: Program, left_out: Iterable[Part]) -> Program:
    smaller = clone(program)
    by_list: dict[tuple[str | int, ...], set[int]] = {}
    for path, index in left_out:
        by_list.setdefault(path, set()).add(index)
    for path, indexes in by_list.items():
        if path[-1] == PLAN_ROWS:
            drop_plan_rows(smaller[int(path[0])], indexes)
        elif path[-1] == PLAN_TOKENS:
            drop_tokens(smaller[int(path[0])], indexes)
        elif path[-1] == LIST_ENTRIES:
            drop_entries(at(smaller, path[:-1]), indexes)
        else:
            drop(at(smaller, path), indexes)
    return smaller


def drop(values: list[Any], indexes: set[int]) -> None:
    values[:] = [value for index, value in enumerate(values) if index not in indexes]


def values_of(view: Line | None) -> list[int]:
    return [] if view is None else view["values"]


def has_plain_rows(plan: Line) -> bool:
    """Rows that can be cut out: query_start says which tokens are whose."""
    starts = values_of(plan["query_start"])[: plan["num_rows"] + 1]
    return (
        len(starts) == plan["num_rows"] + 1
        and starts[0] == 0
        and starts == sorted(starts)
        and starts[-1] == plan["num_tokens"]
    )


def row_views(plan: Line) -> Iterator[list[Any]]:
    """The arrays with one element for each row."""
    yield plan["requests"]
    yield values_of(plan["seq_lens"])
    yield values_of(plan["num_computed"])
    for part in plan["groups"]:
        if part["reads"] and part["reads"].get("table"):
            yield part["reads"]["table"]["rows"]
            yield values_of(part["reads"]["seq_lens"])
            yield values_of(part["reads"]["row_columns"])
        if part["encoding"] == "csr":
            yield values_of(part["reads"]["last_page_len"])


# kvguard.h, kvguard_read_csr and kvguard_read_flat
LIST_NAMES = {"csr": ("indptr", "indices"), "flat": ("starts", "slots")}


def list_arrays(part: Line) -> tuple[list[int], list[int]]:
    """Of a group that reads by lists: offsets and entries."""
    if part["encoding"] not in LIST_NAMES:
        return [], []
    offsets, entries = LIST_NAMES[part["encoding"]]
    return values_of(part["reads"][offsets]), values_of(part["reads"][entries])


def drop_entries(part: Line, indexes: set[int]) -> None:
    offsets, entries = list_arrays(part)
    offsets[:] = [offset - sum(index < offset for index in indexes) for offset in offsets]
    drop(entries, indexes)


def drop_lists(part: Line, rows: set[int]) -> None:
    """A row without entries begins where the next one does."""
    offsets, entries = list_arrays(part)
    gone: set[int] = set()
    for row in rows:
        if row + 1 < len(offsets):
            gone |= set(range(max(offsets[row], 0), min(offsets[row + 1], len(entries))))
    drop_entries(part, gone)
    drop(offsets, rows)


def token_views(plan: Line) -> Iterator[list[Any]]:
    """The arrays with one element for each token."""
    yield values_of(plan["positions"])
    for part in plan["groups"]:
        yield values_of(part["slots"])


def drop_tokens(plan: Line, tokens: set[int]) -> None:
    for view in token_views(plan):
        drop(view, tokens)
    starts = plan["query_start"]["values"]
    known = plan["num_rows"] + 1
    starts[:known] = [start - sum(token < start for token in tokens) for start in starts[:known]]
    plan["num_tokens"] -= len(tokens)
    plan["padded_tokens"] -= len(tokens)


def drop_plan_rows(plan: Line, rows: set[int]) -> None:
    starts = plan["query_start"]["values"]
    drop_tokens(plan, {token for row in rows for token in range(starts[row], starts[row + 1])})
    # a row without tokens begins where the next one does
    drop(starts, rows)
    for view in row_views(plan):
        drop(view, rows)
    for part in plan["groups"]:
        drop_lists(part, rows)
    plan["num_rows"] -= len(rows)
    plan["padded_rows"] -= len(rows)


# whole requests and steps


def requests(program: Program) -> list[int]:
    """In the order in which they are first named."""
    seen: dict[int, None] = {}
    for line in program[1:]:
        for name in ("events", "scheduled", "rows"):
            for row in line.get(name, []):
                seen.setdefault(row["request"])
        for key in line.get("requests", []):
            seen.setdefault(key)
    seen.pop(0, None)
    return list(seen)


def without_requests(program: Program, keys: set[int]) -> Program:
    left_out = [
        part
        for name in ("events", "scheduled", "rows")
        for part in parts(program, name)
        if at(program, part[0])[part[1]]["request"] in keys
    ]
    left_out += [
        part
        for part in parts(program, PLAN_ROWS)
        if program[int(part[0][0])]["requests"][part[1]] in keys
    ]
    return without(program, left_out)


def without_steps(program: Program, steps: set[int]) -> Program:
    kept = [line for line in program[1:] if line.get("step") not in steps]
    return clone([program[0], *kept])


def squashed(program: Program, index: int) -> Program | None:
    """The step that begins at `index` is left out, its events are those of the next one.

    What it has computed is then said to be known at the admission.
    """
    later = [i for i in begins(program) if i > index]
    if not later:
        return None
    smaller = clone(program)
    gone, next_begin = smaller[index], smaller[later[0]]
    events = [event for event in gone["events"] if event["kind"] not in ("zero", "copy")]
    next_begin["events"][:0] = events
    computed = {row["request"]: row["num_computed"] for row in next_begin["scheduled"]}
    for event in events:
        if event["kind"] == "admit" and event["request"] in computed:
            event["first"] = max(event["first"], computed[event["request"]])
            event["count"] = max(event["count"], event["first"])
    # an outcome of the step may also stand behind others
    return [line for line in smaller if line.get("step") != gone["step"] or "pools" in line]


# plainer


def optional_fields(program: Program) -> Iterator[Edit]:
    """Each array that need not be there, left out."""
    for index, line in enumerate(program):
        if line["record"] == "plan":
            for name in ("positions", "num_computed"):
                if line[name] is not None:
                    yield setting((index, name), None)
            for at_, part in enumerate(line["groups"]):
                path = (index, "groups", at_)
                if part["slots"] is not None:
                    yield setting((*path, "slots"), None)
                if part["reads"]:
                    yield no_reads(path)
                    for name in ("seq_lens", "row_columns", "last_page_len"):
                        if part["reads"].get(name) is not None:
                            yield setting((*path, "reads", name), None)
        for name in ("events", "rows"):
            for at_, row in enumerate(line.get(name, []) if index else []):
                if row.get("tokens"):
                    yield no_tokens((index, name, at_))
    if program[0]["standing_gaps"]:
        yield setting((0, "standing_gaps"), [])


def setting(path: tuple[str | int, ...], value: Any) -> Edit:
    def edit(program: Program) -> Program:
        changed = clone(program)
        at(changed, path[:-1])[path[-1]] = value
        return changed

    return edit


def no_reads(path: tuple[str | int, ...]) -> Edit:
    def edit(program: Program) -> Program:
        changed = clone(program)
        at(changed, path).update(reads=None, encoding=None)
        return changed

    return edit


def no_tokens(path: tuple[str | int, ...]) -> Edit:
    def edit(program: Program) -> Program:
        changed = clone(program)
        row = at(changed, path)
        row["tokens"] = []
        if "num_tokens" in row:
            row["num_tokens"] = 0
        return changed

    return edit


def paddings(program: Program) -> Iterator[Edit]:
    """Plans without the rows, tokens and columns behind what they use."""
    for index, line in enumerate(program):
        if line["record"] != "plan":
            continue
        yield lambda old, i=index: cut_plan(old, i, row_views, "num_rows", "padded_rows")
        yield lambda old, i=index: cut_plan(old, i, token_views, "num_tokens", "padded_tokens")
        for at_, part in enumerate(line["groups"]):
            if part["reads"] and part["reads"].get("table"):
                for columns in range(part["reads"]["table"]["columns"]):
                    yield narrower((index, "groups", at_, "reads", "table"), columns)


def cut_plan(program: Program, index: int, views: Any, count: str, padded: str) -> Program:
    changed = clone(program)
    plan = changed[index]
    for view in views(plan):
        del view[plan[count] :]
    for starts in (plan["query_start"]["values"], *(list_arrays(p)[0] for p in plan["groups"])):
        del starts[plan["num_rows"] + 1 :]
    plan[padded] = plan[count]
    return changed


def narrower(path: tuple[str | int, ...], columns: int) -> Edit:
    def edit(program: Program) -> Program:
        changed = clone(program)
        table = at(changed, path)
        table["columns"] = min(table["columns"], columns)
        table["rows"] = [row[:columns] for row in table["rows"]]
        return changed

    return edit


def shorter_rows(program: Program) -> Iterator[Edit]:
    """A scheduled request with fewer tokens, in its step's plans too: fewest first."""
    for index in begins(program):
        for at_, row in enumerate(program[index]["scheduled"]):
            for tokens in dict.fromkeys([1, row["num_tokens"] // 2, row["num_tokens"] - 1]):
                if 1 <= tokens < row["num_tokens"]:
                    yield lambda old, i=index, j=at_, n=tokens: shortened(old, i, j, n)


def shortened(program: Program, index: int, at_: int, tokens: int) -> Program:
    changed = clone(program)
    begin = changed[index]
    row = begin["scheduled"][at_]
    less = row["num_tokens"] - tokens
    row["num_tokens"] = tokens
    row["num_drafts"] = min(row["num_drafts"], tokens)
    for plan in changed[index:]:
        if plan["record"] == "plan" and plan["step"] == begin["step"] and has_plain_rows(plan):
            shorten_plan(plan, row["request"], less)
    return changed


def shorten_plan(plan: Line, request: int, less: int) -> None:
    for row, key in enumerate(plan["requests"]):
        first, last = plan["query_start"]["values"][row : row + 2]
        if key == request and last - first > less:
            drop_tokens(plan, set(range(last - less, last)))
            plan["seq_lens"]["values"][row] -= less


# geometry

# kvguard.h, kvguard_event_kind: whatever stands in their `group`
WITHOUT_GROUP = {"admit", "finish", "preempt", "rollback", "domain", "gap"}


def without_group(program: Program, group: int) -> Program | None:
    """Those behind it get its number; so does a pool that nobody uses then."""
    if len(program[0]["groups"]) == 1:
        return None
    changed = clone(program)
    geometry = changed[0]
    del geometry["groups"][group]
    for number, part in enumerate(geometry["groups"]):
        part["id"] = number
    used = sorted({part["pool"] for part in geometry["groups"]})
    geometry["pools"] = [geometry["pools"][pool] for pool in used]
    for number, pool in enumerate(geometry["pools"]):
        pool["id"] = number
    for part in geometry["groups"]:
        part["pool"] = used.index(part["pool"])
    for line in changed[1:]:
        for name in ("events", "groups"):
            if name in line:
                line[name] = [
                    row
                    for row in line[name]
                    if row["group"] != group or row.get("kind") in WITHOUT_GROUP
                ]
                for row in line[name]:
                    if row["group"] is not None and row["group"] > group:
                        row["group"] -= 1
    return changed


def renumbered_requests(program: Program) -> Program:
    """Keys 1, 2, ... in the order in which they are named."""
    keys = {key: number for number, key in enumerate(requests(program), start=1)}
    changed = clone(program)
    for line in changed[1:]:
        for name in ("events", "scheduled", "rows"):
            for row in line.get(name, []):
                row["request"] = keys.get(row["request"], 0)
                if row.get("name") and row.get("kind") == "admit":
                    row["name"] = f"r{row['request']}"
        if "requests" in line:
            line["requests"] = [keys.get(key, 0) for key in line["requests"]]
    return changed


def renumbered_steps(program: Program) -> Program:
    """Steps 1, 2, ... as far as they are named in a record that has a step."""
    named = {line["step"] for line in program[1:] if line["record"] != "reset" and "step" in line}
    steps = {step: number for number, step in enumerate(sorted(named), start=1)}
    changed = clone(program)
    for line in changed[1:]:
        if "step" in line:
            line["step"] = steps.get(line["step"], 0)
    return changed


def compacted_blocks(program: Program, pool: int) -> Program:
    """The pool's blocks 1, 2, ... in the order in which events name them; null stays what it is."""
    geometry = program[0]
    null = geometry["pools"][pool]["null_block"]
    groups = {part["id"] for part in geometry["groups"] if part["pool"] == pool}
    changed = clone(program)
    events = [
        event
        for _, listed in records_with(changed, "events")
        for event in listed
        if event["group"] in groups
    ]
    in_pool = range(geometry["pools"][pool]["num_blocks"])
    named = [block for event in events for block in event["blocks"] if block in in_pool]
    free = iter(block for block in range(1, len(in_pool) + 1) if block != null)
    new = {null: null} | {block: next(free) for block in dict.fromkeys(named) if block != null}

    def moved(value: int, unit: int) -> int:
        """An entry or slot; `unit` of them make a block."""
        block = value // unit
        return new[block] * unit + value % unit if block in new and value >= 0 else value

    for event in events:
        event["blocks"] = [moved(block, 1) for block in event["blocks"]]
    for _, listed in records_with(changed, "groups"):
        for part in listed:
            if part["group"] in groups:
                trash = geometry["pools"][pool]["write_trash"]
                move_plan(part, geometry["groups"][part["group"]], trash, moved)
    return changed


def move_plan(part: Line, group: Line, trash: int, moved: Callable[[int, int], int]) -> None:
    size, base = group["block_size"], group["slot_base"]

    def moved_slot(slot: int) -> int:
        return moved(slot - base, size * (group["index_scale"] or 1)) + base

    if part["slots"] is not None:
        slots = part["slots"]["values"]
        part["slots"]["values"] = [slot if slot == trash else moved_slot(slot) for slot in slots]
    unit = 1 if group["table_unit"] == "block" else size // group["kernel_block_size"]
    by_slot = group["table_unit"] == "slot"
    _, entries = list_arrays(part)
    sentinel = part["reads"]["sentinel"] if part["encoding"] == "flat" else None
    entries[:] = [
        entry if entry == sentinel else moved_slot(entry) if by_slot else moved(entry, unit)
        for entry in entries
    ]
    if part["reads"] and part["reads"].get("table"):
        table = part["reads"]["table"]
        table["rows"] = [[moved(entry, unit) for entry in row] for row in table["rows"]]


def block_sizes(program: Program) -> Iterator[Edit]:
    for index, group in enumerate(program[0]["groups"]):
        for size in (1, 2, group["kernel_block_size"], group["block_size"] // 2):
            if 1 <= size < group["block_size"] or size < group["kernel_block_size"]:
                yield lambda old, i=index, n=size: resized(old, i, n)


def resized(program: Program, group: int, size: int) -> Program:
    changed = clone(program)
    changed[0]["groups"][group].update(block_size=size, kernel_block_size=size)
    return changed


# numbers

# counts of what is there, names of what is elsewhere, and what has an edit of its own
NOT_LOWERED = {
    "step", "kind_value", "num_rows", "columns", "request", "requests", "id", "pool", "group",
    "block_size", "kernel_block_size", "index_scale", "token_stride", "num_layers", "num_ranks",
    "tp_size", "pp_size", "pcp_size",
}  # fmt: skip
# what is 1 where there is nothing of it
AT_LEAST_ONE = {"dcp_size", "interleave"}


def numbers(program: Program) -> list[tuple[str | int, ...]]:
    """Paths of the numbers that may be lowered, records first."""
    found: list[tuple[str | int, ...]] = []

    def walk(value: Any, path: tuple[str | int, ...]) -> None:
        if isinstance(value, bool):
            return
        if isinstance(value, int):
            found.append(path)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, (*path, index))
        elif isinstance(value, dict):
            counted = value.get("record") == "plan" or value.get("tokens")
            for name, item in value.items():
                if name not in NOT_LOWERED and not (counted and name == "num_tokens"):
                    walk(item, (*path, name))

    for index, line in enumerate(program):
        if index:
            walk(line, (index,))
    walk(program[0], (0,))
    return found


def lower(value: int, name: str | int) -> list[int]:
    """What is nearer to zero, nearest first; -1 is a name (none, pad) and stays."""
    least = 1 if name in AT_LEAST_ONE else 0
    if value > 0:
        return [less for less in sorted({0, 1, value // 2, value - 1}) if least <= less < value]
    return [] if value >= -1 else [-1]
