# SPDX-License-Identifier: Apache-2.0
"""The obvious walker: what the one in C++ must answer, written so that it can be read."""

from __future__ import annotations

from typing import Any

REPLACED = 2  # kvguard.h: KVGUARD_EVENT_REPLACED


class ReferenceWalker:
    def __init__(self, num_groups: int) -> None:
        self.num_groups = num_groups
        self.next_key = 1
        self.live: dict[str, dict[str, int]] = {}

    def key(self) -> int:
        self.next_key += 1
        return self.next_key - 1

    def walk(self, output: Any) -> dict[str, Any]:
        self.events: list[dict[str, Any]] = []
        self.strangers: dict[str, int] = {}
        for name in sorted(output.finished_req_ids):
            self.release("finish", name)
        for name in sorted(output.preempted_req_ids or ()):
            self.release("preempt", name)
        for new in output.scheduled_new_reqs:
            known = new.prefill_token_ids
            known = new.prompt_token_ids if known is None else known
            count = new.num_computed_tokens if known is None else len(known)
            key = self.admit(new.req_id, new.num_computed_tokens, count)
            for group, blocks in enumerate(new.block_ids):
                self.event("replace", key, group, blocks=list(blocks))
        cached = output.scheduled_cached_reqs
        for i, name in enumerate(cached.req_ids):
            kind = "append"
            computed = cached.num_computed_tokens[i]
            if name in cached.resumed_req_ids:
                kind = "replace"
                self.admit(name, computed, computed)
            if name in self.live:
                self.live[name] |= {"computed": computed, "counted": 1}
            for group, blocks in enumerate(cached.new_block_ids[i] or ()):
                if blocks or kind == "replace":
                    self.event(kind, self.key_of(name), group, blocks=list(blocks))
        scheduled = []
        for name, tokens in output.num_scheduled_tokens.items():
            entry = self.live.get(name, {"computed": 0, "scheduled": 0, "counted": 1})
            if not entry["counted"]:
                entry["computed"] += entry["scheduled"]
            entry["scheduled"] = tokens
            drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
            row = {"request": self.key_of(name), "num_tokens": tokens}
            scheduled.append(row | {"num_computed": entry["computed"], "num_drafts": drafts})
        for entry in self.live.values():
            entry["counted"] = 0
        if output.new_block_ids_to_zero:
            self.event("zero", 0, 0, blocks=list(output.new_block_ids_to_zero))
        pairs = [
            b for c in output.kv_cache_block_copies or () for b in (c.src_block_id, c.dst_block_id)
        ]
        if pairs:
            self.event("copy", 0, 0, blocks=pairs)
        return {"events": self.events, "scheduled": scheduled}

    def event(self, kind: str, request: int, group: int | None = None, **fields: Any) -> None:
        empty = {"flags": 0, "first": 0, "count": 0, "blocks": [], "name": None}
        self.events.append({"kind": kind, "request": request, "group": group} | empty | fields)

    def release(self, kind: str, name: str) -> None:
        entry = self.live.pop(name, None)
        self.event(kind, entry["key"] if entry else self.key())

    def admit(self, name: str, first: int, count: int) -> int:
        if name in self.live:
            self.event("finish", self.live.pop(name)["key"], flags=REPLACED)
        key = self.key()
        self.live[name] = {"key": key, "computed": first, "scheduled": 0, "counted": 1}
        self.event("admit", key, first=first, count=count, name=name)
        return key

    def key_of(self, name: str) -> int:
        if name in self.live:
            return self.live[name]["key"]
        if name not in self.strangers:
            self.strangers[name] = self.key()
        return self.strangers[name]
