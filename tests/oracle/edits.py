# SPDX-License-Identifier: Apache-2.0
"""One seeded fault put into one record of a dumped stream.

An edit says whether the stream must then be violated (it touched a number that is judged), must not
be clean (something is missing), or may be anything (the change can be legal).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from random import Random
from typing import Any

Line = dict[str, Any]

VIOLATED, NOT_CLEAN, ANY = "violated", "not clean", "any"
I32_MIN, I32_MAX = -(2**31), 2**31 - 1


@dataclass
class Edit:
    lines: list[Line]
    what: str
    expected: str


def other_value(random: Random, old: int, block: int = 32) -> int:
    """Another number: off by one or by a block, nothing, none, far away."""
    choices = [old + 1, old - 1, old + block, old - block, 0, -1, old * 2, 10**6, I32_MAX, I32_MIN]
    fit = [value for value in choices if value != old and I32_MIN <= value <= I32_MAX]
    return random.choice(fit)


def with_tokens(lines: list[Line]) -> list[int]:
    return [i for i, line in enumerate(lines) if line["record"] == "plan" and line["num_rows"]]


def pick_plan(random: Random, lines: list[Line]) -> tuple[int, Line]:
    index = random.choice(with_tokens(lines))
    return index, lines[index]


def edit_array(random: Random, lines: list[Line], name: str) -> Edit:
    index, plan = pick_plan(random, lines)
    values = plan[name]["values"]
    used = {"seq_lens": plan["num_rows"], "positions": plan["num_tokens"]}.get(name, len(values))
    element = random.randrange(used)
    old = values[element]
    values[element] = other_value(random, old)
    return Edit(lines, f"line {index} {name}[{element}] {old} -> {values[element]}", VIOLATED)


def edit_slot(random: Random, lines: list[Line]) -> Edit:
    index, plan = pick_plan(random, lines)
    slots = plan["groups"][0]["slots"]["values"]
    element = random.randrange(plan["num_tokens"])
    old = slots[element]
    slots[element] = other_value(random, old)
    return Edit(lines, f"line {index} slots[{element}] {old} -> {slots[element]}", VIOLATED)


def edit_table(random: Random, lines: list[Line]) -> Edit:
    # a recorded row ends behind the columns that are judged
    index, plan = pick_plan(random, lines)
    rows = plan["groups"][0]["reads"]["table"]["rows"]
    row = random.randrange(plan["num_rows"])
    column = random.randrange(len(rows[row]))
    old = rows[row][column]
    rows[row][column] = other_value(random, old)
    what = f"line {index} table[{row}][{column}] {old} -> {rows[row][column]}"
    return Edit(lines, what, VIOLATED)


def edit_row_columns(random: Random, lines: list[Line]) -> Edit:
    with_columns = [
        i for i in with_tokens(lines) if lines[i]["groups"][0]["reads"]["row_columns"] is not None
    ]
    index = random.choice(with_columns)
    values = lines[index]["groups"][0]["reads"]["row_columns"]["values"]
    row = random.randrange(lines[index]["num_rows"])
    old = values[row]
    values[row] = other_value(random, old)
    return Edit(lines, f"line {index} row_columns[{row}] {old} -> {values[row]}", VIOLATED)


def edit_request(random: Random, lines: list[Line]) -> Edit:
    index, plan = pick_plan(random, lines)
    row = random.randrange(plan["num_rows"])
    old = plan["requests"][row]
    plan["requests"][row] = random.choice([old + 1, 10**9, old + 10**12])
    return Edit(lines, f"line {index} requests[{row}] {old} -> {plan['requests'][row]}", VIOLATED)


def swap_slots(random: Random, lines: list[Line]) -> Edit:
    plans = [i for i in with_tokens(lines) if lines[i]["num_tokens"] > 1]
    index = random.choice(plans)
    slots = lines[index]["groups"][0]["slots"]["values"]
    a, b = random.sample(range(lines[index]["num_tokens"]), 2)
    slots[a], slots[b] = slots[b], slots[a]
    return Edit(lines, f"line {index} slots {a} and {b} swapped", VIOLATED)


def swap_rows(random: Random, lines: list[Line]) -> Edit:
    plans = [i for i in with_tokens(lines) if lines[i]["num_rows"] > 1]
    if not plans:
        return edit_table(random, lines)
    index = random.choice(plans)
    rows = lines[index]["groups"][0]["reads"]["table"]["rows"]
    a, b = random.sample(range(lines[index]["num_rows"]), 2)
    rows[a], rows[b] = rows[b], rows[a]
    return Edit(lines, f"line {index} table rows {a} and {b} swapped", VIOLATED)


def pick_event(random: Random, lines: list[Line], kinds: list[str]) -> tuple[Line, int, Line]:
    places = [
        (line, i, event)
        for line in lines
        if line["record"] == "begin"
        for i, event in enumerate(line["events"])
        if event["kind"] in kinds
    ]
    return random.choice(places)


def edit_bound_block(random: Random, lines: list[Line]) -> Edit:
    begin, index, event = pick_event(random, lines, ["append", "replace"])
    column = random.randrange(len(event["blocks"]))
    old = event["blocks"][column]
    event["blocks"][column] = other_value(random, old)
    what = f"step {begin['step']} event {index} blocks[{column}] {old} -> {event['blocks'][column]}"
    return Edit(lines, what, VIOLATED)


def drop_event(random: Random, lines: list[Line]) -> Edit:
    begin, index, event = pick_event(
        random, lines, ["admit", "append", "replace", "finish", "preempt"]
    )
    del begin["events"][index]
    expected = ANY if event["kind"] in ("finish", "preempt") else VIOLATED
    return Edit(lines, f"step {begin['step']} event {index} {event['kind']} dropped", expected)


def double_event(random: Random, lines: list[Line]) -> Edit:
    begin, index, event = pick_event(
        random, lines, ["admit", "append", "replace", "finish", "preempt"]
    )
    begin["events"].insert(index, copy.deepcopy(event))
    expected = {"admit": NOT_CLEAN, "append": VIOLATED}.get(event["kind"], ANY)
    return Edit(lines, f"step {begin['step']} event {index} {event['kind']} doubled", expected)


def edit_admission(random: Random, lines: list[Line]) -> Edit:
    begin, index, event = pick_event(random, lines, ["admit"])
    old = event["first"]
    event["first"] = max(other_value(random, old), 0)
    # unchanged where 0 became 0
    expected = ANY if event["first"] == old else VIOLATED
    what = f"step {begin['step']} event {index} first {old} -> {event['first']}"
    # a count that was said too small is a suspicion and then believed
    return Edit(lines, what, expected if event["first"] < old else ANY)


def edit_schedule(random: Random, lines: list[Line]) -> Edit:
    begins = [line for line in lines if line["record"] == "begin" and line["scheduled"]]
    begin = random.choice(begins)
    row = random.randrange(len(begin["scheduled"]))
    name = random.choice(["num_tokens", "num_computed", "num_drafts"])
    old = begin["scheduled"][row][name]
    value = max(other_value(random, old), 1 if name == "num_tokens" else 0)
    begin["scheduled"][row][name] = value
    expected = ANY if name == "num_drafts" or value == old else VIOLATED
    return Edit(lines, f"step {begin['step']} row {row} {name} {old} -> {value}", expected)


def drop_record(random: Random, lines: list[Line]) -> Edit:
    kinds = ("begin", "plan", "end")
    index = random.choice([i for i, line in enumerate(lines) if line["record"] in kinds])
    what = f"line {index} {lines[index]['record']} of step {lines[index]['step']} dropped"
    # one of two stages, or the last END, may be missing without harm
    expected = ANY if lines[index]["record"] != "begin" else NOT_CLEAN
    del lines[index]
    return Edit(lines, what, expected)


EDITS = [
    lambda random, lines: edit_array(random, lines, "seq_lens"),
    lambda random, lines: edit_array(random, lines, "positions"),
    lambda random, lines: edit_array(random, lines, "query_start"),
    edit_slot,
    edit_slot,
    edit_table,
    edit_table,
    edit_row_columns,
    edit_request,
    swap_slots,
    swap_rows,
    edit_bound_block,
    edit_bound_block,
    drop_event,
    double_event,
    edit_admission,
    edit_schedule,
    edit_schedule,
    drop_record,
]


def edit(lines: list[Line], seed: int) -> Edit:
    """The same seed, the same edit; `lines` stay as they are."""
    random = Random(seed)
    return random.choice(EDITS)(random, copy.deepcopy(lines))
