# SPDX-License-Identifier: Apache-2.0
"""Transfers, their ids and their pins. judging.md, Transfers; the state alone, no rule."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvguard_oracle.geometry import Group

RESERVE, LOAD, SEND = "reserve", "load", "send-pending"
ANNOUNCING = (RESERVE, LOAD, SEND)

# judging.md, transfer-reused: so many of the latest ended ids are remembered
MOST_ENDED = 4096


@dataclass
class Transfer:
    id: int
    # RESERVE, LOAD or SEND: what was announced last
    kind: str
    group: Group
    # 0: not known
    request: int
    # logical position of the first token of blocks[0]
    first: int
    # how many tokens from there, as the engine said
    count: int
    # as the engine said them
    blocks: list[int]
    # the last step that had begun when it was announced
    announced_in: int
    cancelled: bool = False

    def pins(self, group: Group, block: int) -> bool:
        """Ids belong to the pool; one that is out of it pins nothing, nor does the null block."""
        pool = self.group.pool
        if pool.index != group.pool.index or not pool.in_range(block) or pool.is_null(block):
            return False
        return block in self.blocks

    def incoming(self) -> bool:
        return self.kind in (RESERVE, LOAD)

    def outgoing(self) -> bool:
        return self.kind == SEND

    def is_waited_for(self, request: int, step: int, start_low: int) -> bool:
        """Announced in the step itself, for its own row, which writes behind it."""
        own = self.request == request and self.announced_in == step
        return own and self.first + self.count <= start_low

    def column(self, index: int) -> int:
        """The column that blocks[index] is for."""
        return self.group.column_of(self.first) + index


@dataclass
class Transfers:
    # announced and not ended
    open: dict[int, Transfer] = field(default_factory=dict)
    # ids, oldest first
    ended: list[int] = field(default_factory=list)
    # LOADs whose request was not live: they are judged when it is admitted
    waiting: list[Transfer] = field(default_factory=list)
    # a RESET forgot ids: one that is not known may be one of them
    forgot_any: bool = False

    def may_announce(self, kind: str, id_: int) -> bool:
        """Never used twice; a LOAD or SEND_PENDING may follow the RESERVE of its id.

        Not of a RESERVE that was cancelled: that waits for its DRAIN.
        """
        if id_ in self.ended:
            return False
        if id_ not in self.open:
            return True
        reserved = self.open[id_].kind == RESERVE and not self.open[id_].cancelled
        return kind != RESERVE and reserved

    def end(self, id_: int) -> Transfer:
        transfer = self.open.pop(id_)
        self.ended.append(id_)
        if len(self.ended) > MOST_ENDED:
            self.ended.pop(0)
        return transfer

    def pinning(self, group: Group, block: int) -> list[Transfer]:
        return [transfer for transfer in self.open.values() if transfer.pins(group, block)]

    def loading(self, group: Group, block: int) -> bool:
        """An incoming pin of a LOAD: a RESERVE alone forbids nothing."""
        return any(transfer.kind == LOAD for transfer in self.pinning(group, block))

    def loading_since_before(self, group: Group, block: int, step: int) -> bool:
        """Of a LOAD that was announced before the step began."""
        pinning = self.pinning(group, block)
        return any(one.kind == LOAD and one.announced_in < step for one in pinning)

    def forbids_writing(
        self, group: Group, block: int, request: int, step: int, start_low: int
    ) -> bool:
        """judging.md, write-while-pinned, of a row of `request` that starts at `start_low`."""
        return any(
            one.outgoing() or (one.kind == LOAD and not one.is_waited_for(request, step, start_low))
            for one in self.pinning(group, block)
        )

    def after_reset(self) -> Transfers:
        return Transfers(forgot_any=self.forgot_any or bool(self.open or self.ended))
