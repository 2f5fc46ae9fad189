# SPDX-License-Identifier: Apache-2.0
"""What an engine is, and the address of a token.

Everything that docs/judging.md does not define yet is refused here by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvguard_oracle.errors import UnreadableError, UnsupportedError
from kvguard_oracle.records import Line, number, objects, text

# kvguard.h, engine flags
ENGINE_ASYNC = 1 << 0
ENGINE_CONNECTOR = 1 << 1
ENGINE_FILLS_TOLD = 1 << 5
# PARTIAL_HITS, PREFIX_CACHE and ENCODER change none of the rules
ENGINE_FLAGS = 0b111111

FULL, RING, WINDOW, CHUNKED = "full", "ring", "window", "chunked"
STATE, CROSS = "state", "cross"
KINDS = (FULL, RING, WINDOW, CHUNKED, STATE, CROSS)

# kvguard.h, kvguard_encoding: how a plan says what is read
TABLE, CSR, FLAT = "table", "csr", "flat"
LISTS = (CSR, FLAT)

# pools of single-token cells
CELLS = "cells"

# kvguard.h, kvguard_state_mode
MODE_NONE, MODE_ALL, MODE_ALIGN = 0, 1, 2

# kvguard.h, group flags
GROUP_REPLICATED = 1 << 0
GROUP_NO_SLOTS = 1 << 1
GROUP_PAD_ROWS_NULL = 1 << 2

# kvguard.h, pcp_layout
PCP_LAYOUTS = (1, 2, 3)

NONE = -1

LARGEST_I32 = 2**31 - 1
# what a block is bound as whose table entries do not fit 31 bits
BOUND_AS_NOTHING = -1


@dataclass(frozen=True)
class Pool:
    index: int
    kind: str
    # "device" or "host"
    memory: str
    num_blocks: int
    null_block: int
    # the slot that writes of no token may go to
    write_trash: int

    def is_host(self) -> bool:
        """Never read or written by a forward."""
        return self.memory == "host"

    def is_cells(self) -> bool:
        return self.kind == CELLS

    def is_trash(self, slot: int) -> bool:
        return self.write_trash != NONE and slot == self.write_trash

    def has_null_block(self) -> bool:
        return self.null_block != NONE

    def is_null(self, block: int) -> bool:
        return self.has_null_block() and block == self.null_block

    def in_range(self, block: int) -> bool:
        return 0 <= block < self.num_blocks


@dataclass(frozen=True)
class Shard:
    """judging.md, Context parallel: which of a group's positions this rank keeps."""

    ranks: int
    rank: int
    interleave: int


# a group that is kept whole
WHOLE = Shard(ranks=1, rank=0, interleave=1)


@dataclass(frozen=True)
class Group:
    index: int
    pool: Pool
    kind: str
    flags: int
    # TABLE, STATE, CSR or FLAT
    encoding: str
    # "block", "kernel_block" or "slot": what one entry of a table or list counts
    table_unit: str
    # slots of one block, on this rank
    block_slots: int
    kernel_block_size: int
    max_columns: int
    # WINDOW: tokens of the window, kept for ever, kept beyond it; CHUNKED: tokens of a chunk; RING:
    # tokens of the ring
    window: int
    sink: int
    retained: int
    # STATE: one of MODE_*
    state_mode: int
    shard: Shard
    # judging.md, Scaled slots: S, D and O
    index_scale: int
    token_stride: int
    slot_base: int

    def entries_per_block(self) -> int:
        """m (judging.md, Table), E (Lists): how many entries show one bound block."""
        return self.block_slots // self.entry_tokens()

    def entry_tokens(self) -> int:
        """u (judging.md, Lists): how many tokens one entry stands for."""
        sizes = {"block": self.block_slots, "kernel_block": self.kernel_block_size, "slot": 1}
        return sizes[self.table_unit]

    def lists_slots(self) -> bool:
        return self.table_unit == "slot"

    def reads_by_list(self) -> bool:
        return self.encoding in LISTS

    def is_ring(self) -> bool:
        return self.kind == RING

    def is_hole(self, block: int) -> bool:
        """judging.md, Cells: a column with such an id is none."""
        return self.pool.is_cells() and block < 0

    def is_state(self) -> bool:
        return self.kind == STATE

    def is_cross(self) -> bool:
        return self.kind == CROSS

    def keeps_tokens(self) -> bool:
        """Those of its request: not its state, and not the output of its encoder."""
        return not self.is_state() and not self.is_cross()

    def forgets(self) -> bool:
        """Claims of columns that are not needed any more end (judging.md, Windows and States)."""
        if self.is_state():
            return self.state_mode != MODE_NONE
        return self.kind in (WINDOW, CHUNKED)

    # positions and columns

    @property
    def column_tokens(self) -> int:
        """How many positions a column stands for, over all ranks."""
        return self.block_slots * self.shard.ranks

    def place_of(self, position: int) -> int:
        """The ring position; the position itself where the group is none."""
        return position % self.window if self.is_ring() else position

    def tokens_kept(self, tokens: int) -> int:
        """Of so many tokens, those that have a column of their own."""
        return min(tokens, self.window) if self.is_ring() else tokens

    def column_of(self, position: int) -> int:
        return self.place_of(position) // self.column_tokens

    def first_of(self, column: int) -> int:
        """The column's first position."""
        return column * self.column_tokens

    def end_of(self, column: int) -> int:
        """The first position behind the column."""
        return (column + 1) * self.column_tokens

    def begins_before(self, column: int, tokens: int) -> bool:
        """The column is one of those of positions [0, tokens)."""
        return self.first_of(column) < self.tokens_kept(tokens)

    def columns_for(self, tokens: int) -> int:
        """How many columns hold positions [0, tokens)."""
        return -(-self.tokens_kept(tokens) // self.column_tokens)

    # slots, on this rank

    def is_local(self, position: int) -> bool:
        """The position belongs to this rank."""
        within = position % self.column_tokens
        return within // self.shard.interleave % self.shard.ranks == self.shard.rank

    def slot_in(self, block: int, position: int) -> int:
        """judging.md, Context parallel; whole: B[p / bs] * bs + p % bs (Slot, mrv2.md 3.1)."""
        within = self.place_of(position) % self.column_tokens
        stretch = within // (self.shard.interleave * self.shard.ranks)
        offset = stretch * self.shard.interleave + within % self.shard.interleave
        return block * self.slots_between + offset * self.token_stride + self.slot_base

    @property
    def slots_between(self) -> int:
        """From a block's first slot to the next block's."""
        return self.block_slots * self.index_scale

    def is_scaled(self) -> bool:
        return (self.index_scale, self.token_stride, self.slot_base) != (1, 1, 0)

    def block_of_slot(self, slot: int) -> int:
        return (slot - self.slot_base) // self.slots_between

    def slot_in_range(self, slot: int) -> bool:
        return 0 <= slot - self.slot_base < self.pool.num_blocks * self.slots_between

    def local_length(self, tokens: int) -> int:
        """Of positions [0, tokens), how many this rank keeps."""
        shard = self.shard
        whole, rest = divmod(tokens, shard.ranks * shard.interleave)
        own_rest = min(max(rest - shard.rank * shard.interleave, 0), shard.interleave)
        return whole * shard.interleave + own_rest

    def pad_rows_null(self) -> bool:
        return bool(self.flags & GROUP_PAD_ROWS_NULL)


@dataclass(frozen=True)
class Geometry:
    flags: int
    groups: list[Group]
    max_rows: int
    max_tokens: int
    max_model_len: int
    max_drafts: int
    pad_slot: int
    dcp_size: int
    # judging.md, Prefill context parallel; 1: none
    pcp_size: int
    pcp_layout: int

    def is_async(self) -> bool:
        return bool(self.flags & ENGINE_ASYNC)

    def has_connector(self) -> bool:
        return bool(self.flags & ENGINE_CONNECTOR)

    def fills_told(self) -> bool:
        """Every block that a hit may name was filled in this stream."""
        return bool(self.flags & ENGINE_FILLS_TOLD)

    def groups_of_pool(self, pool: Pool) -> list[Group]:
        return [group for group in self.groups if group.pool.index == pool.index]


def fits(group: Group, block: int) -> bool:
    """judging.md, Table: the whole block fits 31 bits."""
    m = group.entries_per_block()
    return block >= 0 and block * m + m - 1 <= LARGEST_I32


def refuse(what: str) -> None:
    raise UnsupportedError(f"docs/judging.md does not define {what}")


def read_pool(line: Line, index: int) -> Pool:
    if number(line, "id") != index:
        raise UnreadableError(f"pool {index} has another id")
    kind, memory = text(line, "kind"), text(line, "memory")
    if kind not in ("pages", STATE, CELLS):
        refuse(f"a pool of {kind}")
    if memory not in ("device", "host"):
        refuse(f"a pool in {memory} memory")
    num_blocks, null_block = number(line, "num_blocks"), number(line, "null_block")
    return Pool(index, kind, memory, num_blocks, null_block, number(line, "write_trash"))


def read_shard(line: Line) -> Shard:
    """Of the geometry; a group may still be kept whole."""
    if number(line, "dcp_size") <= 1:
        return WHOLE
    shard = Shard(number(line, "dcp_size"), number(line, "dcp_rank"), number(line, "interleave"))
    if not 0 <= shard.rank < shard.ranks:
        raise UnreadableError("dcp_rank is not below dcp_size")
    if shard.interleave < 1:
        raise UnreadableError("interleave is at least 1 where dcp_size is greater than 1")
    return shard


def read_group(line: Line, index: int, pools: list[Pool], shard: Shard) -> Group:
    if number(line, "id") != index:
        raise UnreadableError(f"group {index} has another id")
    kind = text(line, "kind")
    if kind not in KINDS:
        refuse(f"a group of kind {kind}")
    if text(line, "placement") != "assigned":
        refuse(f"placement {text(line, 'placement')}")
    encoding, unit = text(line, "encoding"), text(line, "table_unit").replace("-", "_")
    if encoding not in encodings_of(kind):
        refuse(f"reads of a group of kind {kind} encoded as {encoding}")
    if unit not in UNITS[encoding]:
        refuse(f"reads encoded as {encoding} that count {unit}")
    if not 0 <= number(line, "pool") < len(pools):
        raise UnreadableError(f"group {index} names a pool that is not there")
    flags = number(line, "flags")
    # no rule asks for the slots of states
    without_rules = GROUP_NO_SLOTS if kind == STATE else 0
    if flags & ~(GROUP_REPLICATED | GROUP_PAD_ROWS_NULL | without_rules):
        refuse(f"the group flags {flags}")
    group = Group(
        index=index,
        pool=pools[number(line, "pool")],
        kind=kind,
        flags=flags,
        encoding=encoding,
        table_unit=unit,
        block_slots=number(line, "block_size"),
        kernel_block_size=number(line, "kernel_block_size"),
        max_columns=number(line, "max_columns"),
        window=number(line, "window"),
        sink=number(line, "sink"),
        retained=number(line, "retained"),
        state_mode=number(line, "state_mode"),
        # judging.md, States, and Other passes: never sharded
        shard=WHOLE if flags & GROUP_REPLICATED or kind in (STATE, CROSS) else shard,
        index_scale=number(line, "index_scale") or 1,
        token_stride=number(line, "token_stride") or 1,
        slot_base=number(line, "slot_base"),
    )
    check_sizes(group)
    check_state(group)
    check_reads(group)
    check_cells(group)
    check_slots(group)
    return group


# kvguard.h, kvguard_unit, by encoding
UNITS = {
    TABLE: ("block", "kernel_block"),
    STATE: ("block", "kernel_block"),
    CSR: ("block", "kernel_block", "slot"),
    FLAT: ("slot",),
}


def encodings_of(kind: str) -> tuple[str, ...]:
    """judging.md, Lists, Rings, States."""
    own = {FULL: (CSR, FLAT), RING: (FLAT,), STATE: (STATE,)}
    return (TABLE, *own.get(kind, ()))


def check_reads(group: Group) -> None:
    """judging.md, Lists and Rings: what such a group is not."""
    if not group.reads_by_list() and not group.is_ring():
        return
    what = f"a group of kind {group.kind} that reads by {group.encoding}"
    if group.shard.ranks > 1:
        refuse(f"{what} and is sharded")
    if group.pool.is_host():
        refuse(f"{what} on a host pool")
    if group.reads_by_list() and group.pad_rows_null():
        refuse(f"{what} with null rows")


def check_slots(group: Group) -> None:
    """judging.md, Scaled slots."""
    if group.token_stride > group.index_scale:
        raise UnreadableError(f"group {group.index} has tokens further apart than its blocks allow")
    if group.slot_base < 0:
        raise UnreadableError(f"group {group.index} has slots below 0")
    if group.is_scaled() and (group.kind not in (FULL, RING) or group.shard.ranks > 1):
        refuse(f"scaled slots of a group of kind {group.kind}, or of a sharded one")


def check_cells(group: Group) -> None:
    if not group.pool.is_cells():
        return
    if group.kind != FULL or group.encoding != FLAT or group.block_slots != 1:
        refuse("a group of cells that is not full attention by flat lists of single tokens")


def check_sizes(group: Group) -> None:
    if group.block_slots < 1 or group.kernel_block_size < 1:
        raise UnreadableError(f"group {group.index} has blocks without tokens")
    if group.block_slots % group.kernel_block_size != 0:
        raise UnreadableError(f"group {group.index}: kernel_block_size does not divide block_size")
    if group.block_slots % group.shard.interleave != 0:
        raise UnreadableError(f"group {group.index}: interleave does not divide block_size")
    if group.kind in (RING, WINDOW, CHUNKED) and group.window < 1:
        raise UnreadableError(f"group {group.index} has a window without tokens")
    if group.kind != WINDOW and (group.sink or group.retained):
        raise UnreadableError(f"group {group.index}: only a sliding window has a sink or retains")


def check_state(group: Group) -> None:
    if not group.is_state():
        if group.pool.kind == STATE:
            refuse(f"a group of kind {group.kind} in a pool of states")
        return
    if group.state_mode not in (MODE_NONE, MODE_ALL, MODE_ALIGN):
        raise UnreadableError(f"group {group.index} has the unknown state mode {group.state_mode}")
    if group.kernel_block_size != group.block_slots:
        refuse("a group of states whose kernel_block_size is not its block_size")


def check_drafts(geometry: Geometry) -> None:
    for group in geometry.groups:
        if group.is_state() and group.state_mode == MODE_ALL and geometry.max_drafts > 0:
            refuse("drafts beside a group of states in mode all")
        if group.is_ring() and geometry.max_drafts > 0:
            refuse("drafts beside a ring")


def check_prefill_ranks(line: Line) -> None:
    if number(line, "pcp_size") <= 1:
        return
    if number(line, "pcp_layout") not in PCP_LAYOUTS:
        raise UnreadableError(f"pcp_layout {number(line, 'pcp_layout')} is none")
    if not 0 <= number(line, "pcp_rank") < number(line, "pcp_size"):
        raise UnreadableError("pcp_rank is not below pcp_size")


def check_prefill_groups(geometry: Geometry) -> None:
    for group in geometry.groups:
        if geometry.pcp_size > 1 and group.kind != FULL:
            refuse(f"prefill context parallelism of a group of kind {group.kind}")
        if geometry.pcp_size > 1 and group.reads_by_list():
            refuse(f"prefill context parallelism of a group that reads by {group.encoding}")
        if geometry.pcp_size > 1 and group.is_scaled():
            refuse("prefill context parallelism of scaled slots")


def check_pools(geometry: Geometry, pools: list[Pool]) -> None:
    """judging.md, Cells: no other pool besides, and no connector."""
    kinds = {pool.is_cells() for pool in pools}
    if True not in kinds:
        return
    if False in kinds:
        refuse("another pool besides one of cells")
    if geometry.has_connector():
        refuse("a connector of cells")


def check_no_aliasing(lines: list[Line]) -> None:
    """Pools with overlapping bytes would share owners; judging.md knows shared ids only."""
    spans = []
    for line in lines:
        base, stride = number(line, "byte_base"), number(line, "byte_stride")
        if stride == 0:
            continue
        spans.append((number(line, "arena"), base, base + stride * number(line, "num_blocks")))
    for i, (arena, first, end) in enumerate(spans):
        for other_arena, other_first, other_end in spans[i + 1 :]:
            if arena == other_arena and first < other_end and other_first < end:
                refuse("pools whose bytes overlap")


def read_geometry(line: Line) -> Geometry:
    if text(line, "record") != "geometry":
        raise UnreadableError("the first line is not the geometry")
    if line.get("incident"):
        refuse("a stream that starts from a snapshot")
    check_prefill_ranks(line)
    shard = read_shard(line)
    if number(line, "flags") & ~ENGINE_FLAGS:
        refuse(f"the engine flags {number(line, 'flags')}")
    pool_lines = objects(line, "pools")
    pools = [read_pool(pool, index) for index, pool in enumerate(pool_lines)]
    check_no_aliasing(pool_lines)
    groups = [
        read_group(group, index, pools, shard)
        for index, group in enumerate(objects(line, "groups"))
    ]
    geometry = Geometry(
        flags=number(line, "flags"),
        groups=groups,
        max_rows=number(line, "max_rows"),
        max_tokens=number(line, "max_tokens"),
        max_model_len=number(line, "max_model_len"),
        max_drafts=number(line, "max_drafts"),
        pad_slot=number(line, "pad_slot"),
        dcp_size=max(number(line, "dcp_size"), 1),
        pcp_size=max(number(line, "pcp_size"), 1),
        pcp_layout=number(line, "pcp_layout"),
    )
    check_drafts(geometry)
    check_prefill_groups(geometry)
    check_pools(geometry, pools)
    return geometry
