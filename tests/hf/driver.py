# SPDX-License-Identifier: Apache-2.0
"""Continuous batching step by step, on this thread: what arrives when is the same in every run, and
of each wrong token it is known in which step it came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

MOST_STEPS = 2000


@dataclass
class Arrival:
    """A request that arrives before a step (counted from 1), and perhaps is cancelled later."""

    name: str
    tokens: list[int]
    step: int = 1
    cancel: int | None = None


@dataclass
class Run:
    """What came of a run."""

    steps: int = 0
    outputs: dict[str, list[int]] = field(
        default_factory=dict
    )  # of requests that ended by themselves
    partial: dict[str, list[int]] = field(default_factory=dict)
    first_wrong: int | None = None  # the step that gave the first wrong token
    wrong: str | None = None  # its request
    resets: int = 0  # soft resets
    error: BaseException | None = None


def tokens_of(state: Any) -> list[int]:
    """What a request has generated, resets counted in."""
    true = getattr(state, "_true_initial_tokens", 0)
    return (state.initial_tokens[true:] if true else []) + state.generated_tokens


def drive(
    model: Any,
    arrivals: list[Arrival],
    generation: Any,
    config: Any,
    expected: Callable[[str], list[int]] | None = None,
    before: Callable[[Any, int], None] | None = None,
) -> Run:
    """Runs until every request has ended.

    Args:
        expected: tokens that a request must have, by its name.
        before: called before each step, with the processor and the step's number.
    """
    run = Run()
    manager = model.init_continuous_batching(
        generation_config=generation, continuous_batching_config=config
    )
    processor = manager._create_batch_processor()
    manager.batch_processor = processor
    open_arrivals = sorted(arrivals, key=lambda a: a.step)
    cancels = [a for a in arrivals if a.cancel is not None]
    seen: dict[str, Any] = {}
    try:
        with torch.no_grad():
            for step in range(1, MOST_STEPS):
                while open_arrivals and open_arrivals[0].step <= step:
                    arrival = open_arrivals.pop(0)
                    manager.add_request(
                        arrival.tokens,
                        request_id=arrival.name,
                        max_new_tokens=generation.max_new_tokens,
                        eos_token_id=-1,
                    )
                for arrival in cancels:
                    if arrival.cancel == step:
                        manager.cancel_request(arrival.name)
                if before is not None:
                    before(processor, step)
                if not processor.prepare_next_batch():
                    if not open_arrivals and not processor.has_pending_requests():
                        break
                    continue
                run.steps += 1
                batch = [f.state for f in processor.inputs_and_outputs.requests_in_batch]
                manager._generation_step()
                processor.update_batch()
                for state in batch + list(processor.scheduler.active_requests.values()):
                    name = state.request_id
                    if name in seen and seen[name] is not state:
                        run.resets += 1
                    seen[name] = state
                    got = run.partial[name] = tokens_of(state)
                    if expected is None or run.first_wrong is not None:
                        continue
                    if got != expected(name)[: len(got)]:
                        run.first_wrong, run.wrong = run.steps, name
    except Exception as error:  # noqa: BLE001  the caller judges it
        run.error = error
    finally:
        if manager._original_attn_impl is not None:  # as manager.stop() does
            model.set_attn_implementation(manager._original_attn_impl)
    queue = manager.output_router.output_queue
    while not queue.empty():
        output = queue.get()
        if output.is_finished() and output.error is None:
            run.outputs[output.request_id] = list(output.generated_tokens)
    return run
