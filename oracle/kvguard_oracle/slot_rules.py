# SPDX-License-Identifier: Apache-2.0
"""Write slots (04xx). judging.md, PLAN, Slot, Context parallel (0407), Rings and Write trash.

The address is mrv2.md 3.1 and 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvguard_oracle.findings import PROOF, SUSPICION, Finding
from kvguard_oracle.geometry import Group, fits
from kvguard_oracle.ownership_rules import judge_foreign_writes
from kvguard_oracle.passes import DRAFT
from kvguard_oracle.records import GroupPlan
from kvguard_oracle.view import KnownRow, View

SLOT_MISMATCH = 401
SLOT_NULL_BLOCK = 402
SLOT_PAD = 403
SLOT_OUT_OF_RANGE = 404
SLOT_WRITTEN_TWICE = 405
PAD_SLOT_REAL = 406
SLOT_NOT_LOCAL = 407


@dataclass
class Token:
    position: int
    slot: int
    # what is bound where the position lives; None: no column
    block: int | None
    wrong: bool
    # of a ring: the step itself writes over it
    clipped: bool = False


def row_tokens(view: View, group: Group, slots: list[int], row: KnownRow) -> list[Token]:
    assert row.tokens is not None
    assert row.start is not None
    tokens = []
    for i, index in enumerate(row.tokens):
        position = row.start + i
        if is_beyond_the_model(view, position):
            break
        block = view.account.bound_block(row.request.key, group, position)
        clipped = group.is_ring() and position + group.window < row.start + len(row.tokens)
        if clipped:
            wrong = not writes_nothing(view, group, slots[index])
        else:
            wrong = is_wrong(view, group, position, slots[index], block)
        tokens.append(Token(position, slots[index], block, wrong, clipped))
    return tokens


def writes_nothing(view: View, group: Group, slot: int) -> bool:
    """The pad slot, or the pool's trash."""
    return slot == view.account.geometry.pad_slot or group.pool.is_trash(slot)


def is_beyond_the_model(view: View, position: int) -> bool:
    """Draft passes: tokens there are not judged."""
    longest = view.account.geometry.max_model_len
    return view.plan.pass_name == DRAFT and longest != 0 and position >= longest


def is_wrong(view: View, group: Group, position: int, slot: int, block: int | None) -> bool:
    if view.plan.pass_name == DRAFT and writes_nothing(view, group, slot):
        return False
    if not group.is_local(position):
        # another rank's: the pad slot, whatever is bound
        return slot != view.account.geometry.pad_slot
    if block is None:
        # no column: wrong whatever the slot
        return True
    if not fits(group, block):
        # bound as -1: not judged
        return False
    return slot != group.slot_in(block, position)


def classify(view: View, group: Group, position: int, slot: int) -> int:
    """In which way a wrong slot is wrong."""
    if writes_nothing(view, group, slot):
        return SLOT_PAD
    if not group.slot_in_range(slot):
        return SLOT_OUT_OF_RANGE
    if not group.is_local(position):
        return SLOT_NOT_LOCAL
    if group.pool.is_null(group.block_of_slot(slot)):
        return SLOT_NULL_BLOCK
    return SLOT_MISMATCH


def judge_slots(view: View) -> list[Finding]:
    findings: list[Finding] = []
    for group, part in view.parts():
        if part.slots is not None and not group.is_state():
            findings += judge_group(view, group, part.slots)
            findings += judge_padding(view, group, part)
    return findings


def judge_group(view: View, group: Group, slots: list[int]) -> list[Finding]:
    findings: list[Finding] = []
    written: list[tuple[KnownRow, Token]] = []
    any_wrong = False
    for row in view.rows:
        if not row.has_tokens():
            continue
        tokens = row_tokens(view, group, slots, row)
        written += [(row, token) for token in tokens]
        if not any(token.wrong for token in tokens):
            continue
        any_wrong = True
        findings += wrong_slots(view, group, row, tokens)
        pairs = [(token.position, token.slot) for token in tokens]
        findings += judge_foreign_writes(view, group, row, pairs)
    if any_wrong and view.plan.pass_name != DRAFT:
        findings += written_twice(view, group, written)
    return findings


def wrong_slots(view: View, group: Group, row: KnownRow, tokens: list[Token]) -> list[Finding]:
    first: dict[tuple[int, str], Finding] = {}
    for token in tokens:
        if not token.wrong:
            continue
        code = classify(view, group, token.position, token.slot)
        if token.clipped:
            code = SLOT_MISMATCH
        grade = PROOF
        if view.plan.pass_name == DRAFT and token.block is None and group.is_local(token.position):
            # a draft may run ahead of what is bound; found apart from what is certain
            code, grade = SLOT_MISMATCH, SUSPICION
        finding = view.finding(code, row, token.position, group.index)
        first.setdefault((code, grade), replace(finding, grade=grade))
    return list(first.values())


def written_twice(view: View, group: Group, written: list[tuple[KnownRow, Token]]) -> list[Finding]:
    by_slot: dict[int, list[tuple[KnownRow, Token]]] = {}
    for row, token in written:
        if not writes_nothing(view, group, token.slot):
            by_slot.setdefault(token.slot, []).append((row, token))
    doubled = [slot for slot, tokens in by_slot.items() if len(tokens) > 1]
    if not doubled:
        return []
    # rows were visited in the plan's order and positions rise within a row
    row, token = by_slot[min(doubled)][1]
    return [view.finding(SLOT_WRITTEN_TWICE, row, token.position, group.index)]


def judge_padding(view: View, group: Group, part: GroupPlan) -> list[Finding]:
    """Beyond the tokens nothing is written."""
    return first_real_pad(view, group, part, view.plan.num_tokens)


def judge_dummy(view: View) -> list[Finding]:
    """A dummy pass has no token: no slot in [0, padded_tokens) writes anything."""
    findings = []
    for group, part in view.parts():
        if not group.is_state():
            findings += first_real_pad(view, group, part, 0)
    return findings


def first_real_pad(view: View, group: Group, part: GroupPlan, first: int) -> list[Finding]:
    if part.slots is None:
        return []
    for index in range(first, min(view.plan.padded_tokens, len(part.slots))):
        if not writes_nothing(view, group, part.slots[index]):
            return [view.finding(PAD_SLOT_REAL, None, index, group.index)]
    return []
