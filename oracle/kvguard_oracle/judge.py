# SPDX-License-Identifier: Apache-2.0
"""The fold: (account, record) -> (account', findings), and what it all comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kvguard_oracle.account import Account, OpenStep
from kvguard_oracle.content_rules import judge_contents, judge_homes
from kvguard_oracle.copy_rules import judge_announcements, judge_early_use, judge_lost
from kvguard_oracle.cross import has_output_to_write
from kvguard_oracle.errors import MalformedError, UnreadableError, UnsupportedError
from kvguard_oracle.events import apply_event, is_followed, is_ignored
from kvguard_oracle.findings import PROOF, SUSPICION, Finding
from kvguard_oracle.frontier_rules import judge_frontier
from kvguard_oracle.geometry import Geometry, Group, read_geometry
from kvguard_oracle.length_rules import judge_lengths
from kvguard_oracle.lifetime_rules import judge_lifetime
from kvguard_oracle.list_rules import judge_lists
from kvguard_oracle.micro_batches import judge_missing
from kvguard_oracle.outcome import END_ABANDONED, apply_end, apply_outcome, had_forward
from kvguard_oracle.passes import (
    DUMMY,
    PASSES,
    PREFILL_PARALLEL_PASSES,
    reads_as_the_target,
    says_what_was_shown,
)
from kvguard_oracle.prefill_parallel import judge_gathered_dummy, judge_gathered_slots
from kvguard_oracle.records import (
    Begin,
    End,
    Event,
    Footer,
    Line,
    Outcome,
    Plan,
    Record,
    Refused,
    Reset,
    read_record,
)
from kvguard_oracle.schedule import judge_schedule
from kvguard_oracle.slot_rules import judge_dummy, judge_slots
from kvguard_oracle.state_rules import judge_padded_states, judge_states
from kvguard_oracle.step_rules import judge_rows
from kvguard_oracle.table_rules import judge_tables
from kvguard_oracle.transfer_rules import (
    judge_failed_loads,
    judge_loading_reads,
    judge_waiting_loads,
)
from kvguard_oracle.validate import check_begin, check_outcome, check_plan
from kvguard_oracle.view import View

CLEAN = "clean"
VIOLATED = "violated"
CANNOT_JUDGE = "cannot_judge"

# kvguard.h, event flags
EVENT_BINDINGS_LOST = 1 << 2

STAGE_FINAL = "final"
# what comes before every step is a gap of its own
BEFORE_THE_FIRST = -1


@dataclass
class Result:
    findings: list[Finding] = field(default_factory=list)
    # the name of each gap and the steps it was met in
    gaps: dict[str, set[int]] = field(default_factory=dict)
    steps: int = 0
    # steps with tokens that ended without a gap
    steps_judged: int = 0
    assumptions: int = 0
    ignored: int = 0

    def proofs(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.grade == PROOF]

    def suspicions(self) -> Counter[int]:
        return Counter(finding.code for finding in self.findings if finding.grade == SUSPICION)

    def gap_steps(self) -> set[int]:
        return set().union(*self.gaps.values())

    def verdict(self) -> str:
        if self.proofs():
            return VIOLATED
        if self.gap_steps() or self.steps_judged == 0:
            return CANNOT_JUDGE
        return CLEAN


class Judge:
    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.account = Account(geometry)
        self.step: OpenStep | None = None
        self.last_begun: int | None = None
        # nothing but dummy passes is judged until a RESET
        self.bindings_lost = False
        # groups that were shown at stage FINAL once, in whatever step
        self.shown_final: set[int] = set()
        self.result = Result()

    def feed(self, record: Record) -> None:
        try:
            if isinstance(record, Begin):
                self.feed_begin(record)
            elif isinstance(record, Plan):
                self.feed_plan(record)
            elif isinstance(record, Outcome):
                self.feed_outcome(record)
            elif isinstance(record, End):
                self.feed_end(record)
            elif isinstance(record, Reset):
                self.feed_reset()
            elif isinstance(record, Refused):
                raise MalformedError(f"a refused {record.kind}")
            elif isinstance(record, Footer):
                self.feed_footer(record)
        except MalformedError as error:
            self.malformed(record, str(error))

    def gap(self, name: str, step: int) -> None:
        self.result.gaps.setdefault(name, set()).add(step)

    def malformed(self, record: Record, sentence: str) -> None:
        """The record moved nothing; its step has a gap, and a lost BEGIN has lost bindings."""
        name = f"malformed: {sentence}"
        number = getattr(record, "step", 0)
        if isinstance(record, Begin) or getattr(record, "kind", "") == "begin":
            self.bindings_lost = True
            if self.step is None and self.is_new_step(number):
                self.open(number)
            self.gap(name, self.open_or_ended())
            return
        self.gap(name, self.open_or_ended())
        if self.is_new_step(number) and not is_dummy(record):
            # of a step beyond the last one begun: its BEGIN was lost on the way
            self.bindings_lost = True

    def open_or_ended(self) -> int:
        """kvguard.h, step_verdict: the open or just ended step."""
        return BEFORE_THE_FIRST if self.last_begun is None else self.last_begun

    def is_new_step(self, number: int) -> bool:
        return self.last_begun is None or number > self.last_begun

    def open(self, number: int) -> OpenStep:
        self.step = OpenStep(number)
        self.last_begun = number
        return self.step

    # BEGIN

    def feed_begin(self, begin: Begin) -> None:
        if self.step is not None:
            raise MalformedError("a step is open")
        if not self.is_new_step(begin.step):
            raise MalformedError("the step is not larger than every one before")
        if not self.bindings_lost:
            check_begin(self.geometry, set(self.account.requests), begin)
        step = self.open(begin.step)
        self.account.begun = begin.step
        step.has_tokens = bool(begin.scheduled)
        self.look_for_loss(begin.events)
        if not self.bindings_lost and admits_twice(begin.events):
            # which of the two is meant is not known
            self.bindings_lost = True
            self.gap("admitted-twice", begin.step)
        if not self.bindings_lost and not all(is_followed(self.geometry, e) for e in begin.events):
            self.bindings_lost = True
            self.gap("table-event-not-followed", begin.step)
        if self.bindings_lost:
            self.gap("bindings-lost", begin.step)
            return
        for event in begin.events:
            if event.kind == "gap":
                step.judges_plans = False
                self.gap("declared", begin.step)
        self.account.hits_made = []
        self.apply_events(begin.step, begin.events)
        admitted = {event.request for event in begin.events if event.kind == "admit"}
        self.result.findings += judge_waiting_loads(self.account, begin.step, admitted)
        self.result.findings += judge_homes(self.account, begin.step)
        findings, gaps = judge_schedule(self.account, step, begin.scheduled)
        self.result.findings += findings
        for name in gaps:
            self.gap(name, begin.step)
        contents, assumptions = judge_contents(self.account, step)
        self.result.findings += contents
        self.result.assumptions += assumptions
        self.result.findings += judge_failed_loads(self.account, step)
        self.result.findings += judge_announcements(self.account, step)

    def look_for_loss(self, events: list[Event]) -> None:
        if any(event.kind == "gap" and event.flags & EVENT_BINDINGS_LOST for event in events):
            self.bindings_lost = True

    def apply_events(self, number: int, events: list[Event]) -> None:
        self.account.admitted_now = set()
        for event in events:
            if is_ignored(self.account, event):
                self.result.ignored += 1
            self.result.findings += apply_event(self.account, self.step, number, event)

    # PLAN

    def feed_plan(self, plan: Plan) -> None:
        if plan.pass_name not in PASSES:
            raise UnsupportedError(f"docs/judging.md does not define a {plan.pass_name} pass")
        if self.geometry.pcp_size > 1 and plan.pass_name not in PREFILL_PARALLEL_PASSES:
            raise UnsupportedError(f"docs/judging.md does not define a {plan.pass_name} pass of it")
        if plan.pass_name == DUMMY:
            self.feed_dummy(plan)
            return
        if self.step is None or plan.step != self.step.number:
            raise MalformedError("a plan of a step that is not open")
        check_plan(self.geometry, plan)
        self.note_presented(self.step, plan)
        if self.step.judges_plans and not self.bindings_lost:
            self.judge_plan(self.step, plan)

    def feed_dummy(self, plan: Plan) -> None:
        """At any time, and whatever is known of the bindings."""
        check_plan(self.geometry, plan)
        step = self.step or OpenStep(plan.step)
        view = View(self.account, step, plan, [])
        if self.geometry.pcp_size > 1:
            self.result.findings += judge_gathered_dummy(view)
        else:
            self.result.findings += judge_dummy(view)
        self.result.findings += judge_padded_states(view, first=0)

    def note_presented(self, step: OpenStep, plan: Plan) -> None:
        for part in plan.groups:
            if not says_what_was_shown(plan, self.geometry.groups[part.group]):
                continue
            if part.table is not None or (part.lists is not None and part.lists.presented()):
                step.tables.add(part.group)
            if part.slots is not None:
                step.slots.add(part.group)
            if part.states is not None and part.states.presented():
                step.states.add(part.group)
            if plan.stage == STAGE_FINAL:
                step.finals.add(part.group)
                self.shown_final.add(part.group)

    def judge_plan(self, step: OpenStep, plan: Plan) -> None:
        """In the order of judging.md, PLAN."""
        view, findings = judge_rows(self.account, step, plan)
        findings += judge_tables(view)
        frontier, assumptions = judge_frontier(view)
        findings += frontier
        # the list of a row whose start is taken from the plan is judged too
        findings += judge_lists(view)
        if reads_as_the_target(plan):
            findings += judge_lifetime(view)
            findings += judge_loading_reads(view)
            findings += judge_early_use(view)
        findings += judge_lengths(view)
        if self.geometry.pcp_size > 1:
            findings += judge_gathered_slots(view)
        else:
            findings += judge_slots(view)
        states, copied_unsaid = judge_states(view)
        findings += states
        findings += judge_padded_states(view, first=plan.num_rows)
        self.result.findings += findings
        self.result.assumptions += assumptions + copied_unsaid

    # OUTCOME, END, RESET

    def feed_outcome(self, outcome: Outcome) -> None:
        if self.last_begun is None or outcome.step > self.last_begun:
            raise MalformedError("the outcome of a step that was not begun")
        if self.bindings_lost:
            return
        check_outcome(self.geometry, outcome)
        if any(event.kind == "gap" for event in outcome.events):
            self.gap("declared", self.open_or_ended())
        self.look_for_loss(outcome.events)
        if self.bindings_lost:
            return
        self.apply_events(outcome.step, outcome.events)
        findings, ignored = apply_outcome(self.account, self.step, outcome)
        self.result.findings += findings
        self.result.ignored += ignored

    def feed_end(self, end: End) -> None:
        if self.step is None or end.step != self.step.number:
            raise MalformedError("the end of a step that is not open")
        step = self.step
        if end.flags & END_ABANDONED:
            self.gap("abandoned", step.number)
        if not self.bindings_lost:
            self.look_for_missing(step, end)
            # what an abandoned step, or one with a GAP, has done is not known
            told = not end.flags & END_ABANDONED and step.judges_plans and had_forward(step, end)
            if told:
                self.result.findings += judge_missing(self.account, step)
            apply_end(self.account, step, end)
            if told:
                self.result.findings += judge_lost(self.account, step)
        self.result.steps += 1
        if had_forward(step, end) and step.number not in self.result.gap_steps():
            self.result.steps_judged += 1
        self.step = None

    def look_for_missing(self, step: OpenStep, end: End) -> None:
        """judging.md, Verdicts: what a step with tokens must have shown."""
        if not had_forward(step, end):
            return
        for group in self.geometry.groups:
            if group.pool.is_host():
                continue
            if group.is_state():
                if group.index not in step.tables | step.states:
                    self.gap("states-not-presented", step.number)
            else:
                if group.index not in step.tables:
                    self.gap("table-not-presented", step.number)
                if group.index not in step.slots and self.writes_slots(step, group):
                    self.gap("slots-not-presented", step.number)
            if group.index in self.shown_final and group.index not in step.finals:
                self.gap("final-plan-missing", step.number)

    def writes_slots(self, step: OpenStep, group: Group) -> bool:
        """Of a CROSS group: where some encoder has output that is not written yet."""
        requests = [self.account.requests[key] for key in step.scheduled]
        return not group.is_cross() or any(map(has_output_to_write, requests))

    def feed_reset(self) -> None:
        if self.step is not None:
            self.gap("reset-in-step", self.step.number)
        self.step = None
        self.account = self.account.after_reset()
        self.bindings_lost = False

    def feed_footer(self, footer: Footer) -> None:
        if footer.lost_steps or footer.lost_records:
            raise UnsupportedError("the trace lost records: " + footer.reason)


def admits_twice(events: list[Event]) -> bool:
    """Whatever the record does with the key in between."""
    admitted = [event.request for event in events if event.kind == "admit"]
    return len(set(admitted)) < len(admitted)


def is_dummy(record: Record) -> bool:
    return isinstance(record, Plan) and record.pass_name == DUMMY


def judge_lines(lines: Iterable[Line]) -> Result:
    """Judges a whole stream: the geometry's line, then the records'."""
    remaining = iter(lines)
    first = next(remaining, None)
    if first is None:
        raise UnreadableError("nothing to read")
    judge = Judge(read_geometry(first))
    for line in remaining:
        judge.feed(read_record(line))
    return judge.result
