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

FULL, WINDOW, CHUNKED, STATE, CROSS = "full", "window", "chunked", "state", "cross"

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

    def is_host(self) -> bool:
        """Never read or written by a forward."""
        return self.memory == "host"

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
    # "block" or "kernel_block": what one entry of a table counts
    table_unit: str
    # slots of one block, on this rank
    block_slots: int
    kernel_block_size: int
    max_columns: int
    # WINDOW: tokens of the window, kept for ever, kept beyond it; CHUNKED: tokens of a chunk
    window: int
    sink: int
    retained: int
    # STATE: one of MODE_*
    state_mode: int
    shard: Shard

    def entries_per_block(self) -> int:
        """m (judging.md, Table): how many table entries show one bound block."""
        if self.table_unit == "block":
            return 1
        return self.block_slots // self.kernel_block_size

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

    def column_of(self, position: int) -> int:
        return position // self.column_tokens

    def first_of(self, column: int) -> int:
        """The column's first position."""
        return column * self.column_tokens

    def end_of(self, column: int) -> int:
        """The first position behind the column."""
        return (column + 1) * self.column_tokens

    def columns_for(self, tokens: int) -> int:
        """How many columns hold positions [0, tokens)."""
        return -(-tokens // self.column_tokens)

    # slots, on this rank

    def is_local(self, position: int) -> bool:
        """The position belongs to this rank."""
        within = position % self.column_tokens
        return within // self.shard.interleave % self.shard.ranks == self.shard.rank

    def slot_in(self, block: int, position: int) -> int:
        """judging.md, Context parallel; whole: B[p / bs] * bs + p % bs (Slot, mrv2.md 3.1)."""
        within = position % self.column_tokens
        stretch = within // (self.shard.interleave * self.shard.ranks)
        offset = stretch * self.shard.interleave + within % self.shard.interleave
        return block * self.block_slots + offset

    def block_of_slot(self, slot: int) -> int:
        return slot // self.block_slots

    def slot_in_range(self, slot: int) -> bool:
        return 0 <= slot < self.pool.num_blocks * self.block_slots

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
    if text(line, "kind") not in ("pages", "state"):
        refuse(f"a pool of {text(line, 'kind')}")
    kind, memory = text(line, "kind"), text(line, "memory")
    if memory not in ("device", "host"):
        refuse(f"a pool in {memory} memory")
    return Pool(index, kind, memory, number(line, "num_blocks"), number(line, "null_block"))


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
    if kind not in (FULL, WINDOW, CHUNKED, STATE, CROSS):
        refuse(f"a group of kind {kind}")
    if text(line, "placement") != "assigned":
        refuse(f"placement {text(line, 'placement')}")
    if text(line, "encoding") not in (("table", "state") if kind == STATE else ("table",)):
        refuse(f"reads encoded as {text(line, 'encoding')}")
    unit = text(line, "table_unit").replace("-", "_")
    if unit not in ("block", "kernel_block"):
        refuse(f"tables that count {unit}")
    formula = [number(line, name) for name in ("index_scale", "token_stride", "slot_base")]
    if formula != [1, 1, 0]:
        refuse("slots of a block that are not consecutive")
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
    )
    check_sizes(group)
    check_state(group)
    return group


def check_sizes(group: Group) -> None:
    if group.block_slots < 1 or group.kernel_block_size < 1:
        raise UnreadableError(f"group {group.index} has blocks without tokens")
    if group.block_slots % group.kernel_block_size != 0:
        raise UnreadableError(f"group {group.index}: kernel_block_size does not divide block_size")
    if group.block_slots % group.shard.interleave != 0:
        raise UnreadableError(f"group {group.index}: interleave does not divide block_size")
    if group.kind in (WINDOW, CHUNKED) and group.window < 1:
        raise UnreadableError(f"group {group.index} has a window without tokens")
    if group.kind == CHUNKED and (group.sink or group.retained):
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
    return geometry
