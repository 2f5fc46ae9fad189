# SPDX-License-Identifier: Apache-2.0
"""The faults of faults_drafts.toml and faults_eagle.toml, by name."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from layouts_vllm.faults import appends, layers, length_of
from layouts_vllm.planting import Engine, Fault


def drafted(engine: Engine, batch: Any) -> Iterator[tuple[int, str, int, int, int]]:
    """Rows with drafts: row, request, index of its last token, start, number of drafts."""
    for b, request in enumerate(batch.req_ids):
        first, length, start = length_of(batch, b)
        drafts = engine.plan.drafts.get(request, 0)
        if drafts > 0 and length == drafts + 1:
            yield b, request, first + length - 1, start, drafts


class RejectedDraftsCounted(Fault):
    def output(self, engine: Engine, output: Any) -> None:
        cached, plan = output.scheduled_cached_reqs, engine.plan
        for i, request in enumerate(cached.req_ids):
            most = plan.computed[request] + plan.scheduled.get(request, 0)
            if cached.num_computed_tokens[i] < most:
                cached.num_computed_tokens[i] += 1
                plan.set(request, f"count {cached.num_computed_tokens[i]}")
                return


class NoBlockForDrafts(Fault):
    def output(self, engine: Engine, output: Any) -> None:
        cached = output.scheduled_cached_reqs
        counts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for request, said in appends(output):
            columns = len(engine.plan.rows[request][0])
            if counts[request] + 1 <= columns * engine.sizes[0]:  # for its drafts alone
                said[0].pop()
                engine.plan.set(request, f"column {columns}")
                return


class DraftsAtOnePosition(Fault):
    def inputs(self, engine: Engine, batch: Any) -> None:
        for b, request, last, _, drafts in drafted(engine, batch):
            if drafts > 1:
                batch.positions[last - drafts + 1 : last + 1] = batch.positions[last - drafts + 1]
                engine.plan.set(request, f"row {b}")
                return


class DraftSlotOfOtherRow(Fault):
    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        rows = list(drafted(engine, batch))
        if len(rows) < 2:
            return
        slots[0, rows[0][2]] = slots[0, rows[1][2]]
        engine.plan.set(rows[0][1], f"slot of {rows[1][1]}")


class DraftPastItsBlock(Fault):
    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        for _, request, last, start, drafts in drafted(engine, batch):
            for i in range(last - drafts + 1, last + 1):
                if (start + i - (last - drafts)) % engine.sizes[0] == 0:
                    slots[0, i] = slots[0, i - 1] + 1
                    engine.plan.set(request, f"token {i}")
                    return


class DraftWithoutSlot(Fault):
    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        for _, request, last, _, _ in drafted(engine, batch):
            slots[0, last] = -1
            engine.plan.set(request, f"token {last}")
            return


class LengthsWithoutDrafts(Fault):
    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        rows = list(drafted(engine, batch))
        if not rows:
            return
        fresh = copy.copy(made[layers(engine, 0)[0]])
        fresh.seq_lens = fresh.seq_lens.clone()
        for b, *_, drafts in rows:
            fresh.seq_lens[b] -= drafts
        made.update(dict.fromkeys(layers(engine, 0), fresh))
        engine.plan.set(rows[0][1], f"{len(rows)} rows")


class DraftsOfNextRow(Fault):
    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        for b, request, _, _, drafts in drafted(engine, batch):
            if b + 1 == batch.num_reqs:
                continue
            fresh = copy.copy(made[layers(engine, 0)[0]])
            fresh.query_start_loc = fresh.query_start_loc.clone()
            fresh.query_start_loc[b + 1] -= drafts
            made.update(dict.fromkeys(layers(engine, 0), fresh))
            engine.plan.set(request, f"row {b}")
            return


class MoreRejected(Fault):
    def sampled(self, engine: Engine, batch: Any, sampled: Any, rejected: Any) -> None:
        for b, request, _, _, drafts in drafted(engine, batch):
            rejected[b] = drafts + 1
            engine.plan.set(request, f"row {b}")
            return


class Counted(Fault):
    """What the runner takes off for a row with rejected drafts that goes on."""

    def counted(self, engine: Engine, batch: Any, rejected: torch.Tensor) -> torch.Tensor:
        for b, request, _, start, _ in drafted(engine, batch):
            if 0 < int(rejected[b]) < start and engine.goes_on(request):
                changed = rejected.clone()
                changed[b] = self.instead(int(rejected[b]))
                engine.plan.set(request, f"{int(changed[b])} instead of {int(rejected[b])}")
                return changed
        return rejected

    def instead(self, rejected: int) -> int:
        raise NotImplementedError


class RejectionNotApplied(Counted):
    def instead(self, rejected: int) -> int:
        return 0


class RejectionTwice(Counted):
    def instead(self, rejected: int) -> int:
        return rejected + 1


class RejectionsOfOtherRows(Fault):
    def counted(self, engine: Engine, batch: Any, rejected: torch.Tensor) -> torch.Tensor:
        changed = rejected.roll(1)
        for b, request, *_ in drafted(engine, batch):
            if changed[b] != rejected[b] and engine.goes_on(request):
                engine.plan.set(request, f"{changed.tolist()} instead of {rejected.tolist()}")
                return changed
        return rejected


class SchedulerCountTaken(Fault):
    def state(self, engine: Engine, output: Any) -> None:
        cached, states = output.scheduled_cached_reqs, engine.runner.req_states
        for request, said in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            slot = states.req_id_to_index[request]
            if said > int(states.num_computed_tokens.gpu[slot]):
                states.num_computed_tokens.gpu[slot] = said
                engine.plan.set(request, f"count {said}")
                return


# --- passes of a draft model ---------------------------------------------------------------------


class DraftModelSlot(Fault):
    def drafting(self, engine: Engine, index: int, made: dict[str, Any]) -> None:
        slots = engine.runner.block_tables.slot_mappings
        if index == 1 and engine.batch.num_reqs > 1:
            slots[0, 0] = slots[0, 1]
            engine.plan.set(engine.batch.req_ids[0], f"slot of {engine.batch.req_ids[1]}")


class DraftSlotsOfPassBefore(Fault):
    def drafting(self, engine: Engine, index: int, made: dict[str, Any]) -> None:
        slots, n = engine.runner.block_tables.slot_mappings, engine.batch.num_reqs
        if index == 2:
            slots[0, :n] = self.previous
            engine.plan.set(engine.batch.req_ids[0], f"{n} slots")
        self.previous = slots[0, :n].clone()


class DraftRowsSwapped(Fault):
    def drafting(self, engine: Engine, index: int, made: dict[str, Any]) -> None:
        if index != 1 or engine.batch.num_reqs < 2:
            return
        for name, metadata in made.items():
            made[name] = copy.copy(metadata)
            made[name].block_table = metadata.block_table.clone()
            made[name].block_table[:2] = metadata.block_table[:2].flip(0)
        engine.plan.set(engine.batch.req_ids[0], "row 0 and row 1")


class DraftLengthShort(Fault):
    def drafting(self, engine: Engine, index: int, made: dict[str, Any]) -> None:
        for name, metadata in made.items():
            made[name] = copy.copy(metadata)
            made[name].seq_lens = metadata.seq_lens.clone()
            made[name].seq_lens[0] -= 1
        engine.plan.set(engine.batch.req_ids[0], "row 0")


class DraftBehindRejected(Fault):
    def proposing(self, engine: Engine, batch: Any, rejected: torch.Tensor) -> torch.Tensor:
        if not bool((rejected > 0).any()):
            return rejected
        engine.plan.set(batch.req_ids[0], f"{rejected.tolist()} taken for 0")
        return torch.zeros_like(rejected)


FAULTS: dict[str, type[Fault]] = {
    "rejected-drafts-counted": RejectedDraftsCounted,
    "no-block-for-the-drafts": NoBlockForDrafts,
    "drafts-at-one-position": DraftsAtOnePosition,
    "draft-slot-of-another-row": DraftSlotOfOtherRow,
    "draft-past-its-block": DraftPastItsBlock,
    "draft-without-slot": DraftWithoutSlot,
    "lengths-without-drafts": LengthsWithoutDrafts,
    "drafts-given-to-the-next-row": DraftsOfNextRow,
    "more-rejected-than-drafted": MoreRejected,
    "rejection-not-applied": RejectionNotApplied,
    "rejection-applied-twice": RejectionTwice,
    "rejections-of-other-rows": RejectionsOfOtherRows,
    "scheduler-count-taken": SchedulerCountTaken,
    "draft-model-slot-of-another-row": DraftModelSlot,
    "draft-slots-of-the-pass-before": DraftSlotsOfPassBefore,
    "draft-rows-swapped": DraftRowsSwapped,
    "draft-length-short": DraftLengthShort,
    "draft-position-behind-rejected": DraftBehindRejected,
}
