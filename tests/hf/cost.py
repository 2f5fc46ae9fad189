# SPDX-License-Identifier: Apache-2.0
"""What the guard adds to a decode step of 32 requests and 4,000 read indices, beside a check of
the same plan in plain Python. Prints medians; compare within one run only."""

from __future__ import annotations

import statistics
import time
from typing import Any

from kvguard.transformers import guard
from kvguard.transformers.session import Session

from tests.hf import driver, engine

REQUESTS, PROMPT, NEW = 32, 110, 30


def plain_check(processor: Any, batch: Any) -> None:
    """Every index of the plan against what the tables give, one after another."""
    (allocator,) = processor.cache.cache_allocators.values()
    page, stride = allocator.tokens_per_page, allocator.block_physical_stride
    writes, reads = batch["write_index"][0].tolist(), batch["read_index"][0].tolist()
    w = r = 0
    for future in processor.inputs_and_outputs.requests_in_batch:
        row = allocator.block_table[future.state.request_id]
        end = future.state.position_offset
        for position in range(end - future.query_length, end):
            assert writes[w] == row[position // page] * stride + position % page
            w += 1
        for position in range(end):
            assert reads[r] == row[position // page] * stride + position % page
            r += 1
    assert (w, r) == (len(writes), len(reads))


def measure() -> dict[str, float]:
    """Medians in microseconds."""
    model = engine.model("llama")
    spent: dict[str, list[float]] = {"step": [], "plan": [], "python": []}
    own = [0.0]

    def timed(name: str) -> Any:
        inner = getattr(Session, name)

        def call(self: Any, *args: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(self, *args)
            finally:
                took = time.perf_counter() - start
                own[0] += took
                if name == "_plan":
                    spent["plan"].append(took)

        return call

    names = ("_begin", "_plan", "_outcome", "_end")
    before = {name: getattr(Session, name) for name in names}
    for name in names:
        setattr(Session, name, timed(name))
    inputs = engine.prompts([PROMPT] * REQUESTS, seed=1)
    arrivals = [driver.Arrival(f"r{i}", tokens) for i, tokens in enumerate(inputs)]
    try:
        with guard(model) as g:

            def at(processor: Any, step: int) -> None:
                if step == 1:
                    ios = processor.inputs_and_outputs
                    kwargs = ios.get_model_kwargs

                    def check(*args: Any, **more: Any) -> Any:
                        batch = kwargs(*args, **more)
                        start = time.perf_counter()
                        if batch["read_index"][0].numel():
                            plain_check(processor, batch)
                        spent["python"].append(time.perf_counter() - start)
                        return batch

                    ios.get_model_kwargs = check
                else:
                    spent["step"].append(own[0])
                own[0] = 0.0

            config = engine.batching(page=32, blocks=256, tokens=4096)
            driver.drive(model, arrivals, engine.generation(NEW), config, before=at)
        assert g.verdict == "clean", g.report()
    finally:
        for name, method in before.items():
            setattr(Session, name, method)
    return {name: statistics.median(times[3:]) * 1e6 for name, times in spent.items()}


if __name__ == "__main__":
    found = measure()
    print(
        f"{REQUESTS} requests, decode: guard {found['step']:.0f} us a step, of it the plan "
        f"{found['plan']:.0f} us; plain Python check of the plan {found['python']:.0f} us"
    )
