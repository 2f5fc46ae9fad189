# SPDX-License-Identifier: Apache-2.0
"""The faults of faults_*.toml, by name; those of drafts are in draft_faults.py."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from layouts_vllm.planting import Engine, Fault

Blocks = list[list[int]]


def appends(output: Any) -> Iterator[tuple[str, Blocks]]:
    """Running requests with a new block in each group; what is changed in place is handed out."""
    cached = output.scheduled_cached_reqs
    for i, request in enumerate(cached.req_ids):
        if cached.new_block_ids[i] is None or not all(cached.new_block_ids[i]):
            continue
        said = [list(ids) for ids in cached.new_block_ids[i]]
        cached.new_block_ids[i] = tuple(said)
        yield request, said


def neighbours(engine: Engine, output: Any, request: str) -> list[str]:
    """Other requests that live through this output."""
    gone = output.finished_req_ids | (output.preempted_req_ids or set())
    gone |= {new.req_id for new in output.scheduled_new_reqs}
    return [r for r in engine.plan.rows if r != request and r not in gone]


def length_of(batch: Any, b: int) -> tuple[int, int, int]:
    """Of a row of the batch: its first token there, its number of tokens, its start."""
    first, last = int(batch.query_start_loc[b]), int(batch.query_start_loc[b + 1])
    return first, last - first, int(batch.seq_lens[b]) - (last - first)


# --- point a: the SchedulerOutput ----------------------------------------------------------------


class FreedTooEarly(Fault):
    def output(self, engine: Engine, output: Any) -> None:
        for request, said in appends(output):
            for other in neighbours(engine, output, request):
                plan = engine.plan
                end = plan.computed[other] + plan.scheduled.get(other, 0)
                first = engine.first_needed(0, end)
                row = plan.rows[other][0]
                if 0 < first < end // engine.sizes[0] and first < len(row):
                    said[0][-1] = row[first]
                    plan.set(request, f"block {row[first]} of {other}'s column {first}")
                    return


class OneBlockInTwoGroups(Fault):
    def output(self, engine: Engine, output: Any) -> None:
        for request, said in appends(output):
            said[0][-1] = engine.plan.rows[request][engine.full][-1]
            engine.plan.set(request, f"block {said[0][-1]}")
            return


class NullBlockBound(Fault):
    group = 1

    def output(self, engine: Engine, output: Any) -> None:
        for request, said in appends(output):
            said[self.group][-1] = 0
            engine.plan.set(request, f"group {self.group}")
            return


class NullBlockInOneGroup(NullBlockBound):
    group = 0


class AppendMissing(Fault):
    def output(self, engine: Engine, output: Any) -> None:
        for request, said in appends(output):
            said[1].pop()
            engine.plan.set(request, "group 1")
            return


class PrunedAtAdmission(Fault):
    def output(self, engine: Engine, output: Any) -> None:
        for new in output.scheduled_new_reqs:
            first = engine.first_needed(0, new.num_computed_tokens)
            if new.num_computed_tokens == 0 or new.block_ids[0][first] == 0:
                continue
            said = [list(ids) for ids in new.block_ids]
            said[0][first] = 0
            new.block_ids = tuple(said)
            engine.plan.set(new.req_id, f"column {first}")
            return


class FreedBlockRead(Fault):
    """Not of a request that has a new block in this step: what that rebinds is judged first."""

    def output(self, engine: Engine, output: Any) -> None:
        plan, cached = engine.plan, output.scheduled_cached_reqs
        for i, request in enumerate(cached.req_ids):
            row = plan.rows[request][0]
            first = engine.first_needed(0, plan.computed[request])
            others = neighbours(engine, output, request)
            for column in range(first):
                held = any(row[column] in ids for r in others for ids in plan.rows[r])
                if row[column] == 0 or not held or cached.new_block_ids[i]:
                    continue
                # The last token whose window still has the column.
                back = (column + 1) * engine.sizes[0] + engine.windows[0] - 2
                cached.num_computed_tokens[i] = back
                slot = engine.runner.req_states.req_id_to_index[request]
                engine.runner.req_states.num_computed_tokens.gpu[slot] = back
                plan.set(request, f"column {column}, back to {back}")
                return


# --- point b: the runner's state -----------------------------------------------------------------


class FrontierAdvanced(Fault):
    def state(self, engine: Engine, output: Any) -> None:
        for request in output.scheduled_cached_reqs.req_ids:
            states = engine.runner.req_states
            states.num_computed_tokens.gpu[states.req_id_to_index[request]] += 1
            engine.plan.set(request, "count")
            return


class AppendLost(Fault):
    def append(self, engine: Engine, row: int, blocks: tuple[list[int], ...]) -> Any:
        if not all(blocks):
            return None
        engine.plan.set(f"slot {row}", f"blocks {blocks[1]}")
        return (blocks[0], [], *blocks[2:])


class AppendIntoOtherGroup(Fault):
    def append(self, engine: Engine, row: int, blocks: tuple[list[int], ...]) -> Any:
        if not all(blocks):
            return None
        said = list(blocks)
        said[0], said[engine.full] = said[engine.full], said[0]
        engine.plan.set(f"slot {row}", f"blocks {said}")
        return tuple(said)


class FreedColumnsDropped(Fault):
    def state(self, engine: Engine, output: Any) -> None:
        plan, tables = engine.plan, engine.runner.block_tables
        for request in output.scheduled_cached_reqs.req_ids:
            first = engine.first_needed(0, plan.computed[request])
            if first == 0:
                continue
            slot = engine.runner.req_states.req_id_to_index[request]
            row = tables.block_tables[0].gpu[slot]
            row[:-first] = row[first:].clone()
            tables.num_blocks.np[0, slot] -= first
            plan.set(request, f"{first} columns")
            return


# --- point c: the return of prepare_attn ---------------------------------------------------------


class SlotsOfOtherGroup(Fault):
    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        slots[0] = slots[engine.full]
        engine.plan.set(batch.req_ids[0], "all slots")


class RowsSwapped(Fault):
    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        if batch.num_reqs < 2:
            return
        tables[1][:2] = tables[1][:2].flip(0)
        engine.plan.set(batch.req_ids[0], f"row 0 and row 1 ({batch.req_ids[1]})")


class NullBlockWritten(Fault):
    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        slots[1, 0] = int(slots[1, 0]) % engine.sizes[1]
        engine.plan.set(batch.req_ids[0], "its first token")


class PrunedTooFar(Fault):
    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        for b, request in enumerate(batch.req_ids):
            _, _, start = length_of(batch, b)
            first = engine.first_needed(0, start)
            if 0 < first < start // engine.sizes[0]:
                tables[0][b, first] = 0
                engine.plan.set(request, f"column {first}")
                return


class StaleSlots(Fault):
    group = 1
    previous: torch.Tensor | None = None

    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        right, previous = slots[self.group, : batch.num_tokens].clone(), self.previous
        self.previous = right
        if previous is None or torch.equal(right[: len(previous)], previous[: len(right)]):
            return
        n = min(len(previous), batch.num_tokens)
        slots[self.group, :n] = previous[:n]
        engine.plan.set(batch.req_ids[0], f"{n} slots of the step before")


class BehindTheWindow(Fault):
    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        for b, request in enumerate(batch.req_ids):
            _, _, start = length_of(batch, b)
            first = engine.first_needed(0, start)
            if first > 0:
                tables[0][b, first - 1] = engine.plan.rows[request][engine.full][0]
                engine.plan.set(request, f"column {first - 1}")
                return


# --- points d and e: what the builders made, and the forward's context ---------------------------


def layers(engine: Engine, group: int) -> list[str]:
    return engine.runner.kv_cache_config.kv_cache_groups[group].layer_names


class LengthsCut(Fault):
    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        window = engine.windows[0]
        if int(batch.seq_lens.max()) <= window:
            return
        fresh = copy.copy(made[layers(engine, 0)[0]])
        fresh.seq_lens = fresh.seq_lens.clamp(max=window)
        made.update(dict.fromkeys(layers(engine, 0), fresh))
        engine.plan.set(batch.req_ids[0], f"to {window}")


class MetadataOfOtherGroup(Fault):
    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        made[layers(engine, 0)[1]] = made[layers(engine, engine.full)[0]]
        engine.plan.set(batch.req_ids[0], layers(engine, 0)[1])


class RowsSwappedInMetadata(Fault):
    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        if batch.num_reqs < 2:
            return
        fresh = copy.copy(made[layers(engine, 0)[0]])
        fresh.block_table = fresh.block_table.clone()
        fresh.block_table[:2] = fresh.block_table[:2].flip(0)
        made.update(dict.fromkeys(layers(engine, 0), fresh))
        engine.plan.set(batch.req_ids[0], f"row 0 and row 1 ({batch.req_ids[1]})")


class LayerElsewhere(Fault):
    """The forward's slots are found by the lists of the groups' layers: one is listed wrongly."""

    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        groups = engine.runner.kv_cache_config.kv_cache_groups
        name, target = self.choose(engine)
        next(g.layer_names for g in groups if name in g.layer_names).remove(name)
        if target is not None:
            target.append(name)
        engine.plan.set(batch.req_ids[0], name)

    def choose(self, engine: Engine) -> tuple[str, list[str] | None]:
        """The layer, and the list that has it instead."""
        raise NotImplementedError


class SlotsOfOtherGroupForALayer(LayerElsewhere):
    def choose(self, engine: Engine) -> tuple[str, list[str] | None]:
        return layers(engine, 0)[1], layers(engine, engine.full)


class LayerWithoutSlots(LayerElsewhere):
    group = 1

    def choose(self, engine: Engine) -> tuple[str, list[str] | None]:
        return layers(engine, self.group)[1], None


class LatentsNotWritten(LayerWithoutSlots):
    group = 0


# --- asynchronous scheduling ---------------------------------------------------------------------


class FreedInFlight(Fault):
    def output(self, engine: Engine, output: Any) -> None:
        for request, said in appends(output):
            for other in neighbours(engine, output, request):
                if other in output.num_scheduled_tokens and other in engine.plan.scheduled:
                    said[0][-1] = engine.plan.rows[other][0][-1]
                    engine.plan.set(request, f"block {said[0][-1]} of {other}")
                    return


class CountAhead(Fault):
    def output(self, engine: Engine, output: Any) -> None:
        cached = output.scheduled_cached_reqs
        if cached.req_ids:
            cached.num_computed_tokens[0] += 1
            engine.plan.set(cached.req_ids[0], f"count {cached.num_computed_tokens[0]}")


class TableOfStepBefore(Fault):
    previous: tuple[list[str], torch.Tensor] | None = None

    def planned(self, engine: Engine, batch: Any, tables: Any, slots: torch.Tensor) -> None:
        right, previous = (list(batch.req_ids), tables[0].clone()), self.previous
        self.previous = right
        if previous is None or previous[0][0] == right[0][0]:
            return
        n = min(len(previous[1]), len(right[1]))
        tables[0][:n] = previous[1][:n]
        engine.plan.set(batch.req_ids[0], f"row 0 of {previous[0][0]}")


class SlotsOfStepBefore(StaleSlots):
    group = 0


class LengthsOfStepBefore(Fault):
    previous: torch.Tensor | None = None

    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        first = made[layers(engine, 0)[0]]
        right, previous = first.seq_lens.clone(), self.previous
        self.previous = right
        if previous is None:
            return
        fresh = copy.copy(first)
        n = min(len(previous), len(right))
        fresh.seq_lens = torch.cat([previous[:n], right[n:]])
        if torch.equal(fresh.seq_lens, right):
            return
        made.update(dict.fromkeys(layers(engine, 0), fresh))
        engine.plan.set(batch.req_ids[0], f"{fresh.seq_lens.tolist()}")


# --- metadata with parts for decodes and prefills -------------------------------------------------


def parts(engine: Engine, made: dict[str, Any], part: str) -> Any:
    """A copy of one part, which every layer is given from now on; None where the step has none."""
    first = made[layers(engine, 0)[0]]
    if getattr(first, part) is None:
        return None
    fresh = copy.copy(first)
    setattr(fresh, part, copy.copy(getattr(first, part)))
    made.update(dict.fromkeys(layers(engine, 0), fresh))
    return getattr(fresh, part)


class DecodeRowsSwapped(Fault):
    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        decode = parts(engine, made, "decode")
        if decode is None or len(decode.block_table) < 2:
            return
        decode.block_table = decode.block_table.clone()
        decode.block_table[:2] = decode.block_table[:2].flip(0)
        engine.plan.set(batch.req_ids[0], f"row 0 and row 1 ({batch.req_ids[1]})")


class DecodeLengthShort(Fault):
    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        decode = parts(engine, made, "decode")
        if decode is None:
            return
        decode.seq_lens = decode.seq_lens.clone()
        decode.seq_lens[0] -= 1
        engine.plan.set(batch.req_ids[0], "row 0")


class PrefillOffsetsShifted(Fault):
    def metadata(self, engine: Engine, batch: Any, made: dict[str, Any]) -> None:
        prefill = parts(engine, made, "prefill")
        if prefill is None:
            return
        prefill.query_start_loc = prefill.query_start_loc.clone()
        prefill.query_start_loc[-1] -= 1
        engine.plan.set(batch.req_ids[-1], f"{prefill.query_start_loc.tolist()}")


FAULTS: dict[str, type[Fault]] = {
    "freed-too-early": FreedTooEarly,
    "one-block-in-two-groups": OneBlockInTwoGroups,
    "null-block-bound": NullBlockBound,
    "append-missing-in-one-group": AppendMissing,
    "pruned-too-far-at-admission": PrunedAtAdmission,
    "freed-block-still-read": FreedBlockRead,
    "frontier-advanced": FrontierAdvanced,
    "append-lost-in-one-group": AppendLost,
    "append-into-the-wrong-group": AppendIntoOtherGroup,
    "freed-columns-dropped": FreedColumnsDropped,
    "slots-of-the-wrong-group": SlotsOfOtherGroup,
    "rows-swapped-in-one-group": RowsSwapped,
    "null-block-written": NullBlockWritten,
    "pruned-too-far": PrunedTooFar,
    "stale-slots-in-one-group": StaleSlots,
    "behind-the-window": BehindTheWindow,
    "lengths-cut": LengthsCut,
    "metadata-of-another-group": MetadataOfOtherGroup,
    "rows-swapped-in-one-metadata": RowsSwappedInMetadata,
    "slots-of-the-wrong-group-for-a-layer": SlotsOfOtherGroupForALayer,
    "layer-without-slots": LayerWithoutSlots,
    "freed-in-flight": FreedInFlight,
    "count-ahead": CountAhead,
    "table-of-the-step-before": TableOfStepBefore,
    "slots-of-the-step-before": SlotsOfStepBefore,
    "lengths-of-the-step-before": LengthsOfStepBefore,
    "null-block-in-one-group": NullBlockInOneGroup,
    "decode-rows-swapped": DecodeRowsSwapped,
    "decode-length-short": DecodeLengthShort,
    "prefill-offsets-shifted": PrefillOffsetsShifted,
    "latents-not-written": LatentsNotWritten,
}
