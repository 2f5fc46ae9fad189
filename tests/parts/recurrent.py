# SPDX-License-Identifier: Apache-2.0
"""Where a model runner reads and leaves recurrent states, without a model.

vLLM's v1/worker/gpu/model_states/mamba_hybrid.py and the kernels of v1/worker/mamba_utils.py say
which; here it is said again, in columns of a request's row.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass
from typing import Any

from kvguard import _core

MODES = {"none": _core.STATE_NONE, "all": _core.STATE_ALL, "align": _core.STATE_ALIGN}


@dataclass
class Running:
    """What a runner keeps of a request besides its row."""

    column: int  # of the running state
    accepted: int = 1  # of the last step: the state that is valid stands accepted - 1 behind it


class Recurrent:
    """The states of one group."""

    def __init__(self, group: int, mode: str, block_size: int, seen: Counter[str]) -> None:
        self.group = group
        self.mode = mode
        self.deaf: set[str] = set()  # requests whose accepted drafts are ignored
        self.short: set[str] = set()  # and whose drafts' states are not left in their columns
        self._size = block_size
        self._seen = seen
        self._running: dict[str, Running] = {}
        self._arrays: list[array[int]] = []  # of the latest plan

    def running(self, name: str) -> Running:
        return self._running[name]

    def column_of(self, tokens: int) -> int:
        """Of the running state, where columns are positions."""
        return -(-tokens // self._size) - 1

    def note_appended(self, row: list[int], more: list[int]) -> None:
        """What a running request is given."""
        self._seen["null_columns"] += more.count(0)
        self._seen["moved_blocks"] += sum(block in row for block in more if block)

    def admit(self, name: str, computed: int, row: list[int]) -> None:
        self._running[name] = Running((computed - 1) // self._size if self.mode != "none" else 0)
        self._seen["null_columns"] += row.count(0)
        self._seen["state_hits"] += computed > 0

    def take(self, names: list[str], rows: list[Any], lengths: list[int], drafts: list[int]) -> Any:
        """The group's part of a plan, and the copies (source, target) that go before it."""
        states_in, states_out, init = array("i"), array("i"), array("B")
        copies: list[int] = []
        for name, row, length, num_drafts in zip(names, rows, lengths, drafts, strict=True):
            blocks = row.blocks[self.group]
            running = self._running[name]
            behind = 0 if name in self.deaf else running.accepted - 1
            end = self.column_of(row.computed + length)
            if self.mode == "none":
                source, running.column = behind, 0
            elif self.mode == "all":
                source, running.column = self.column_of(row.computed), end
            else:
                source, column, running.column = running.column + behind, running.column, end
                if 0 <= column != end:
                    self._seen["copies"] += 1
                    copies += (blocks[source], blocks[end])
                    source, running.accepted = end, 1
            states_in.append(blocks[source] if row.computed else 0)
            states_out.append(blocks[running.column + (0 if name in self.short else num_drafts)])
            init.append(row.computed == 0)
        self._arrays = [states_in, states_out, init]
        parts = zip(("states_in", "states_out", "states_init"), self._arrays, strict=True)
        types = {"i": _core.I32, "B": _core.U8}
        shown = {n: (a.buffer_info()[0], len(a), types[a.typecode]) for n, a in parts}
        return {"group": self.group, **shown}, copies

    def finish(self, name: str, row: Any, sampled: int) -> None:
        """A step ended. row: its count has moved already."""
        running = self._running[name]
        running.accepted = max(sampled, 1)
        self._seen["states_behind"] += running.accepted > 1
        if self.mode != "align":
            return
        # Where accepted drafts pass the end of a block, its state is stored in the block's own
        # column, for later hits. Where that is the running one, the next step goes on from it.
        aligned = row.computed // self._size
        if aligned * self._size >= row.computed - running.accepted + 1 and (
            aligned - 1 == running.column
        ):
            running.accepted = 1
