# SPDX-License-Identifier: Apache-2.0
"""The account: what must be true (judging.md, The account). From BEGIN, OUTCOME and END alone.

No counter is kept beside the rows: how many entries name a block is found by looking at all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvguard_oracle.content import BlockContent, Knowledge
from kvguard_oracle.geometry import Geometry, Group, Pool
from kvguard_oracle.records import Event, Scheduled
from kvguard_oracle.transfers import Transfers

MOST_FORGOTTEN = 16


@dataclass
class Entry:
    """One column of one row."""

    block: int
    # False where the id is out of the pool or null, and where a window has passed the column
    claims: bool
    # the step in which this column was bound
    bound_in: int = 0
    # its claim ended silently because the block was handed out, or freed, before `low` passed it
    given_away: bool = False
    # the step in which this claim was made as a prefix hit; None: it was not
    hit_in: int | None = None
    # it was a hit because a last token is computed again
    recomputed_hit: bool = False
    # what this binding made of the block, where it was bound as fresh
    content: BlockContent | None = None
    # it was bound as fresh, and a LOAD had been done into it for this very column and request
    of_a_load: bool = False


@dataclass
class Hit:
    """A prefix hit of the record just read."""

    request: Request
    group: Group
    column: int
    entry: Entry
    # `low` when it was bound
    low: int


@dataclass
class TakenStart:
    """A start that was taken from a plan while drafts were open (judging.md, Frontier)."""

    step: int
    start: int
    # the start as far as the outcomes have been told
    told: int
    # steps whose outcomes are open
    waiting: list[int]


@dataclass
class StatesLeft:
    """A request's latest step that ended, as far as it says where states stand.

    judging.md, States, place.
    """

    # None: not known, or the step was abandoned
    start: int | None
    tokens: int
    drafts: int


@dataclass
class Run:
    """Positions [first, end) that steps of a request wrote in one go (judging.md, Rings)."""

    first: int
    end: int
    # False: what the step left where it may have written is not known
    sure: bool


@dataclass
class Request:
    key: int
    rows: dict[int, list[Entry]]
    # the frontier: tokens whose KV is valid, [low, high]
    low: int
    high: int
    # the most that the scheduler may say it counts
    count: int
    # (step, drafts): drafts whose outcome is not known
    open_outcomes: list[tuple[int, int]] = field(default_factory=list)
    # (step, drafts) whose open outcome was forgotten: it may still be told, and changes nothing
    forgotten: list[tuple[int, int]] = field(default_factory=list)
    # starts that the open outcomes will decide
    taken: list[TakenStart] = field(default_factory=list)
    # the step of the record that admitted it, and that ADMIT's first and count
    admitted_in: int = -1
    first: int = 0
    known_count: int = 0
    knowledge: Knowledge = field(default_factory=Knowledge)
    # step -> its row of that step's schedule
    was_scheduled: dict[int, ScheduledRequest] = field(default_factory=dict)
    # None: no step of it has ended
    states_left: StatesLeft | None = None
    # the most that `high` was at the end of one of its steps
    most_high: int = 0
    # the latest ones, oldest first: what its rings hold
    runs: list[Run] = field(default_factory=list)
    # a step in which it was scheduled has ended: its encoder's output is written
    encoder_written: bool = False
    # the latest step that was forgotten so long ago that nothing is said of it
    forgotten_for_good: int = -1

    def forget_outcomes(self) -> None:
        for step, drafts in self.open_outcomes:
            self.forget(step, drafts)
        self.open_outcomes = []
        self.taken = []

    def take_start(self, step: int, start: int) -> None:
        """Compared later, where the drafts are all that is open; once, however many plans agree."""
        if self.high - self.low != sum(drafts for _, drafts in self.open_outcomes):
            return
        waiting = [of_step for of_step, _ in self.open_outcomes]
        taken = TakenStart(step, start, self.low, waiting)
        if taken not in self.taken:
            self.taken.append(taken)

    def tell_outcome(self, step: int, accepted: int) -> list[int]:
        """The starts that were taken and are another now: the right ones."""
        wrong = []
        for taken in self.taken:
            if step not in taken.waiting:
                continue
            taken.waiting.remove(step)
            taken.told += accepted
            if not taken.waiting and taken.start != taken.told:
                wrong.append(taken.told)
        self.taken = [taken for taken in self.taken if taken.waiting]
        return wrong

    def forget(self, step: int, drafts: int) -> None:
        """judging.md, OUTCOME: the 16 latest of a request are remembered."""
        self.forgotten.append((step, drafts))
        if len(self.forgotten) > MOST_FORGOTTEN:
            gone, _ = self.forgotten.pop(0)
            self.forgotten_for_good = max(self.forgotten_for_good, gone)

    def filled_to(self) -> int:
        """The most that `high` had been at the end of any of its steps, or is."""
        return max(self.most_high, self.high)

    def know_frontier(self, tokens: int) -> None:
        """The frontier is exactly `tokens`; what was open does not matter any more."""
        self.low = self.high = tokens
        self.forget_outcomes()


@dataclass
class ScheduledRequest:
    """A row of the open step's schedule and where its first token may stand."""

    row: Scheduled
    start_low: int = 0
    start_high: int = 0
    # as an OUTCOME inside the step told it; None: not told
    rejected: int | None = None

    def start_known(self) -> bool:
        return self.start_low == self.start_high


@dataclass
class OpenStep:
    number: int
    # something was scheduled, if only an unknown request
    has_tokens: bool = False
    scheduled: dict[int, ScheduledRequest] = field(default_factory=dict)
    # (pool, block) -> the request that this step's schedule writes it for
    writers: dict[tuple[int, int], int] = field(default_factory=dict)
    # False after a GAP event: plans are not judged
    judges_plans: bool = True
    # groups with a table or list, with slots, with states, and at stage FINAL in this step
    tables: set[int] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)
    states: set[int] = field(default_factory=set)
    finals: set[int] = field(default_factory=set)
    # stage -> request -> the tokens that its rows had in micro-batches; no stage: none was judged
    taken: dict[str, dict[int, int]] = field(default_factory=dict)
    # announced by this step: (group, block) and (group, source, target)
    zeroes: list[tuple[Group, int]] = field(default_factory=list)
    copies: list[tuple[Group, int, int]] = field(default_factory=list)
    # of these, those that are not said to be done yet
    zeroes_open: list[tuple[Group, int]] = field(default_factory=list)
    copies_open: list[tuple[Group, int, int]] = field(default_factory=list)
    # (group, source, target) that a COPY_DONE named while the step was open
    copied: list[tuple[Group, int, int]] = field(default_factory=list)


class Account:
    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.requests: dict[int, Request] = {}
        # (pool, block) -> the step in which it was last bound fresh
        self.fresh_in: dict[tuple[int, int], int] = {}
        # (pool, block) -> (group, column) that its content belongs to; not there: not known
        self.homes: dict[tuple[int, int], tuple[int, int]] = {}
        # (pool, block) whose home was ever known, whatever has ended that since
        self.ever_homed: set[tuple[int, int]] = set()
        # (pool, block) whose home is by a LOAD -> the request that it named; 0: none
        self.loaded_for: dict[tuple[int, int], int] = {}
        # (pool, block) that were bound as fresh, loaded, or the target of a COPY
        self.ever_filled: set[tuple[int, int]] = set()
        # the last step that was begun; -1: none since the stream began or the last RESET
        self.begun = -1
        # the requests that the record just read has admitted so far
        self.admitted_now: set[int] = set()
        # the prefix hits of the open step's BEGIN, in the record's order
        self.hits_made: list[Hit] = []
        # (pool, block) -> what it holds; not there: not known, and without a home
        self.contents: dict[tuple[int, int], BlockContent] = {}
        # (pool, block) -> its last fresh binding, whose claim may have ended
        self.fresh_entries: dict[tuple[int, int], Entry] = {}
        # (pool, block) that were freed and that nothing has claimed since
        self.freed: set[tuple[int, int]] = set()
        # (pool, block) that a failed load has left without content
        self.lost_content: set[tuple[int, int]] = set()
        self.transfers = Transfers()
        # (pool, block) -> how many tokens' state it holds; not there: not known
        self.state_tokens: dict[tuple[int, int], int] = {}
        # a COPY_DONE of a STATE group was ever said
        self.says_states_copied = False
        # of "zero" and "copy", those that the engine says the end of
        self.says_done: set[str] = set()

    def after_reset(self) -> Account:
        """A RESET forgets everything; that an engine says DONE is what it is, not an account."""
        account = Account(self.geometry)
        account.transfers = self.transfers.after_reset()
        account.says_done = self.says_done
        account.says_states_copied = self.says_states_copied
        return account

    def admit(self, step: int, event: Event) -> None:
        key, first = event.request, event.first
        rows: dict[int, list[Entry]] = {group.index: [] for group in self.geometry.groups}
        request = Request(key, rows, low=first, high=first, count=first)
        request.admitted_in = step
        request.first, request.known_count = first, event.count
        request.knowledge.tokens = list(event.tokens)
        self.requests[key] = request
        self.admitted_now.add(key)

    def set_home(self, place: tuple[int, int], home: tuple[int, int]) -> None:
        """By a fresh binding; a LOAD then says whom it was for."""
        self.homes[place] = home
        self.ever_homed.add(place)
        self.loaded_for.pop(place, None)

    def move_known(self, pool: Pool, new_of: dict[int, int]) -> None:
        """judging.md, Moves: all that is known of the old blocks goes to the new ones, at once."""
        new_places = {(pool.index, old): (pool.index, new) for old, new in new_of.items()}
        gone = set(new_places) | set(new_places.values())
        by_place: tuple[dict[tuple[int, int], Any], ...] = (
            self.fresh_in,
            self.fresh_entries,
            self.homes,
            self.loaded_for,
            self.contents,
            self.state_tokens,
        )
        for known in by_place:
            moved = {new: known[old] for old, new in new_places.items() if old in known}
            for place in gone & set(known):
                del known[place]
            known.update(moved)
        for places in (self.ever_homed, self.ever_filled, self.freed, self.lost_content):
            arrived = {new for old, new in new_places.items() if old in places}
            places -= gone
            places |= arrived

    def forget_content(self, place: tuple[int, int]) -> None:
        """Home, content and the tokens of a state are not known any more."""
        self.homes.pop(place, None)
        self.loaded_for.pop(place, None)
        self.contents.pop(place, None)
        self.state_tokens.pop(place, None)

    def end_claim(self, request: Request, group: Group, column: int) -> None:
        """The claim of a column ends, for whatever reason; judging.md, Content: what stays."""
        entry = request.rows[group.index][column]
        if not entry.claims:
            return
        entry.claims = False
        content = self.contents.get((group.pool.index, entry.block))
        if content is None or content.loaded or content is not entry.content:
            return
        content.filled = content.end <= request.filled_to()
        content.kept = request.knowledge.up_to(content.end)
        content.binder = None

    def end_claims(self, request: Request, group: Group, first: int = 0) -> None:
        """Columns from `first` on are given back."""
        for column in range(first, len(request.rows[group.index])):
            self.end_claim(request, group, column)
        del request.rows[group.index][first:]

    def finish(self, key: int) -> None:
        request = self.requests.get(key)
        if request is not None:
            for group in self.geometry.groups:
                self.end_claims(request, group)
            del self.requests[key]

    def entries(self, pool: Pool, block: int) -> list[tuple[int, Entry]]:
        """Every claim on a block of a pool, over all groups of the pool, with its request."""
        found = []
        for request in self.requests.values():
            for group in self.geometry.groups_of_pool(pool):
                for entry in request.rows[group.index]:
                    if entry.claims and entry.block == block:
                        found.append((request.key, entry))
        return found

    def claims(self, pool: Pool, block: int) -> int:
        return len(self.entries(pool, block))

    def smallest_holder(self, pool: Pool, block: int) -> tuple[int, int] | None:
        """The smallest key with a claim to the block, and the first column that has it."""
        for key in sorted(self.requests):
            for group in self.geometry.groups_of_pool(pool):
                for column, entry in enumerate(self.requests[key].rows[group.index]):
                    if entry.claims and entry.block == block:
                        return key, column
        return None

    def is_fresh_in(self, step: int, pool: Pool, block: int) -> bool:
        return self.fresh_in.get((pool.index, block)) == step

    def is_claimed_by_its_binder(self, pool: Pool, block: int) -> bool:
        """The request that bound it as fresh still claims it, whatever was loaded since."""
        entry = self.fresh_entries.get((pool.index, block))
        return entry is not None and entry.claims

    def held_by_another(self, pool: Pool, block: int, request: int) -> bool:
        return any(key != request for key, _ in self.entries(pool, block))

    def bound_block(self, request: int, group: Group, position: int) -> int | None:
        """The id that is bound where a position lives; None: no column there, or a hole."""
        row = self.requests[request].rows[group.index]
        column = group.column_of(position)
        if not 0 <= column < len(row) or group.is_hole(row[column].block):
            return None
        return row[column].block
