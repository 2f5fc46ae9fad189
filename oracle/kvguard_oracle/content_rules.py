# SPDX-License-Identifier: Apache-2.0
"""What a prefix hit finds in its blocks (0801 to 0804). judging.md, Content."""

from __future__ import annotations

from collections.abc import Iterator

from kvguard_oracle.account import Account, Hit, OpenStep
from kvguard_oracle.content import BlockContent, Content
from kvguard_oracle.findings import PROOF, SUSPICION, Finding
from kvguard_oracle.geometry import Geometry
from kvguard_oracle.written import writes

CONTENT_MISMATCH = 801
DOMAIN_MISMATCH = 802
CONTENT_UNWRITTEN = 803
CONTENT_MISPLACED = 804


def standing_hits(account: Account) -> Iterator[Hit]:
    """The prefix hits of this record whose claims still stand, and that are not being loaded."""
    return (
        hit
        for hit in account.hits_made
        if hit.entry.claims and not account.transfers.loading(hit.group, hit.entry.block)
    )


def judge_homes(account: Account, step: int) -> list[Finding]:
    """When all events of a BEGIN have been applied."""
    findings = []
    for hit in standing_hits(account):
        here = (hit.group.index, hit.column)
        home = account.homes.get((hit.group.pool.index, hit.entry.block), here)
        if home != here or holds_another_state(account, hit):
            key, column = hit.request.key, hit.column
            findings.append(Finding(CONTENT_MISPLACED, step, hit.group.index, key, column))
    return findings


def holds_another_state(account: Account, hit: Hit) -> bool:
    """judging.md, States: the block's tokens are known and are not those that were hit."""
    if not hit.group.is_state():
        return False
    return account.state_tokens.get((hit.group.pool.index, hit.entry.block), hit.low) != hit.low


def judge_contents(account: Account, step: OpenStep) -> tuple[list[Finding], int]:
    """When the schedule has been judged: the findings, and how many readers said what is there."""
    findings: dict[tuple[int, int, int], Finding] = {}
    assumptions = 0
    for hit in standing_hits(account):
        end = hit.group.end_of(hit.column)
        if hit.group.is_state() and end != hit.low:
            continue
        if is_filled_by_nobody(account, hit):
            code, assumed = CONTENT_UNWRITTEN, 0
        else:
            content = content_at(account, hit, end)
            if content is None:
                continue
            code, assumed = judge_hit(account, step, hit, end, content)
        assumptions += assumed
        if code is None:
            continue
        grade = unwritten_grade(account.geometry) if code == CONTENT_UNWRITTEN else PROOF
        key, index = hit.request.key, hit.group.index
        finding = Finding(code, step.number, index, key, hit.column, grade=grade)
        # one for each request, group and code, at the first such column: what names a block
        # twice over (DEDUPE) comes in any order
        first = findings.setdefault((key, index, code), finding)
        if hit.column < first.pos:
            findings[key, index, code] = finding
    return list(findings.values()), assumptions


def unwritten_grade(geometry: Geometry) -> str:
    """With a connector a block may have been filled unsaid, where fills are not told."""
    return SUSPICION if geometry.has_connector() and not geometry.fills_told() else PROOF


def is_filled_by_nobody(account: Account, hit: Hit) -> bool:
    """judging.md, Fills told: never bound as fresh, copied to or loaded."""
    if not account.geometry.fills_told():
        return False
    return (hit.group.pool.index, hit.entry.block) not in account.ever_filled


def content_at(account: Account, hit: Hit, end: int) -> BlockContent | None:
    """What the hit's block holds; None: it belongs elsewhere.

    Where a block without a known home belongs is what its first reader says too.
    """
    place = (hit.group.pool.index, hit.entry.block)
    here = (hit.group.index, hit.column)
    if account.homes.get(place, here) != here:
        return None
    if place not in account.contents or account.contents[place].kept is None:
        account.contents.setdefault(place, BlockContent(end, nobody=True)).end = end
    return account.contents[place]


def judge_hit(
    account: Account, step: OpenStep, hit: Hit, end: int, content: BlockContent
) -> tuple[int | None, int]:
    """The code, if any, and 1 where the reader said what the block holds."""
    written = content.loaded or content.nobody
    if not written and (is_left_later(account, step, hit) or not is_filled(account, step, content)):
        return CONTENT_UNWRITTEN, 0
    read = hit.request.knowledge.up_to(end)
    if read is None:
        return None, 0
    held = content_of(account, content)
    if held is None and account.is_claimed_by_its_binder(hit.group.pool, hit.entry.block):
        # the binder has what it has, or has loaded: no reader says it
        return None, 0
    if held is None:
        content.kept = read
        return None, 1
    if held.tokens != read.tokens:
        return CONTENT_MISMATCH, 0
    if held.marks != read.marks:
        return DOMAIN_MISMATCH, 0
    return None, 0


def is_left_later(account: Account, step: OpenStep, hit: Hit) -> bool:
    """judging.md, States: a state is read before its step leaves it."""
    pool, block = hit.group.pool, hit.entry.block
    if not hit.group.is_state():
        return False
    return account.is_fresh_in(step.number, pool, block) or any(
        writes(account, step, scheduled, pool, block)
        for key, scheduled in step.scheduled.items()
        if key != hit.request.key
    )


def is_filled(account: Account, step: OpenStep, content: BlockContent) -> bool:
    """Of a block that was bound as fresh and is not loaded."""
    if content.binder is None:
        return content.filled
    binder = account.requests[content.binder]
    filled_to = binder.filled_to()
    scheduled = step.scheduled.get(content.binder)
    if scheduled is not None:
        filled_to = max(filled_to, scheduled.start_high + scheduled.row.num_tokens)
    return content.end <= filled_to


def content_of(account: Account, content: BlockContent) -> Content | None:
    """None: not known."""
    if content.binder is not None:
        return account.requests[content.binder].knowledge.up_to(content.end)
    return content.kept
