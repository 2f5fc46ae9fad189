# SPDX-License-Identifier: Apache-2.0
"""After a start with the guard on, vLLM's modules and classes are what they are without it."""

from __future__ import annotations

import types

from rig.engine import Engine

from slice import untouched

CONFIG = {"kv_guard_config": {"enabled": True, "action": "raise"}}
PROMPT = list(range(5, 45))


def serve(**options: object) -> tuple[int, ...]:
    with Engine(**options) as engine:
        engine.add("r", PROMPT, 4)
        while engine.busy:
            engine.step()
        if options:
            assert engine.runner.kvguard_session.active
        return engine.tokens["r"]


def test_modules_and_classes_are_untouched(figures: list[str]) -> None:
    right = serve()
    displaced = untouched.displaced()
    without = untouched.Snapshot.take()
    from kvguard.vllm import lifecycle, plan, runner, session, worker

    calls = [
        (worker.WorkerHooks, "__init__"),
        (lifecycle.Lifecycle, "__init__"),
        (lifecycle.Lifecycle, "arm"),
        (lifecycle.Lifecycle, "_arm"),
        (plan.PlanReader, "__init__"),
        (runner.ConnectorDelegate, "__init__"),
        (session.Session, "__init__"),
        (session.Session, "arm"),
    ]
    log: list[str] = []
    with untouched.watched(calls, log):
        assert serve(worker_cls="kvguard.vllm.GuardWorker", additional_config=CONFIG) == right
    after = untouched.Snapshot.take()

    assert without.differences(after, code_only=True) == []
    assert untouched.foreign() == []
    assert untouched.displaced() == displaced
    arming = [line for line in log if not line.startswith("WorkerHooks.")]
    assert len(arming) == len(calls) - 1, log
    assert [line for line in arming if not line.endswith(": []")] == []
    code = sum(untouched.is_code(value) for value in without.objects.values())
    figures.append(
        f"untouched: {len(without.modules)} modules, {len(without.objects)} attributes, {code} of "
        f"them code, equal with and without the guard and around {len(arming)} arming calls"
    )


def test_the_checker_sees_what_it_looks_for() -> None:
    from kvguard.vllm import runner
    from vllm.v1.worker.gpu import block_table

    before = untouched.Snapshot.take()
    original = block_table.BlockTables.append_block_ids
    try:
        block_table.BlockTables.append_block_ids = runner.gate
        told = before.differences(untouched.Snapshot.take())
        assert [t for t in told if "BlockTables.append_block_ids" in t]
        assert [t for t in untouched.foreign() if "BlockTables.append_block_ids" in t]
    finally:
        block_table.BlockTables.append_block_ids = original
    try:
        block_table.planted = types.SimpleNamespace()
        assert [t for t in before.differences(untouched.Snapshot.take()) if "planted" in t]
    finally:
        del block_table.planted
    assert before.differences(untouched.Snapshot.take()) == []
