# SPDX-License-Identifier: Apache-2.0
"""A program for each name of tests/layouts/{list,ring,move,cell}_faults.txt, the oracle's own.

Each is a geometry line and its records.
"""

from layout_scenario import (
    DEDUPE,
    MOVE,
    PAD,
    SENTINEL,
    SWAP,
    TOKENS,
    Row,
    cell_engine,
    csr,
    engine,
    erase,
    flat,
    flat_group,
    flat_plan,
    known,
    list_group,
    listed_of_ring,
    rebase,
    remap,
    ring,
    ring_engine,
    ring_group,
    runs,
    shown,
    step,
    table,
    written,
)
from scenario import admit, append, begin, end, event, group, scheduled, transfer

ONE, TWO = [1, 2], [3, 4]
FILLS_TOLD = 32
LORA = 1


# lists


def two_prefills():
    return [Row(1, ONE, 0, 5), Row(2, TWO, 0, 4)]


def two_decodes():
    return [Row(1, ONE, 5, 1), Row(2, TWO, 4, 1)]


def both():
    return [*admit(1, ONE), *admit(2, TWO)]


def listed_steps(group_line, show, second=None, rows=None):
    """A prefill and a decode; `second`: the decode's part."""
    first, rows = two_prefills(), rows or two_decodes()
    part = second(rows) if second else show(rows)
    return [
        engine(group_line), *step(1, both(), first, show(first)), *step(2, [], rows, part)
    ]  # fmt: skip


def blocks_with(second=None, rows=None):
    return listed_steps(list_group(), csr, second, rows)


def kernel_blocks(rows):
    return csr(rows, unit=2)


def kernel_blocks_with(second=None, rows=None):
    halves = list_group(unit="kernel_block", kernel_block_size=2)
    return listed_steps(halves, kernel_blocks, second, rows)


def slots(rows):
    return csr(rows, unit=1)


def slots_with(second=None, rows=None):
    return listed_steps(list_group(unit="slot"), slots, second, rows)


def flat_with(second=None, rows=None):
    return listed_steps(flat_group(), flat, second, rows)


def one_of(listed):
    """The decode in which row 1 reads `listed`."""
    return [Row(1, ONE, 5, 1, listed), two_decodes()[1]]


def with_last(rows, *last):
    return csr(rows, last=list(last))


def micro_batches():
    began = begin(1, admit(1, ONE), [scheduled(1, 6, 0)])
    parts = [Row(1, ONE, 0, 3), Row(1, ONE, 3, 3)]
    plans = [
        shown(1, [row], csr([row]), pass_name="micro-batch", pass_index=index)
        for index, row in enumerate(parts)
    ]
    return [engine(list_group()), began, *plans, end(1)]


def draft_pass(listed):
    """A target of 4 tokens, then a draft of the fifth."""
    row, drafted = Row(1, ONE, 0, 4), Row(1, ONE, 4, 1, listed)
    target = shown(1, [row], csr([row]))
    draft = shown(1, [drafted], csr([drafted]), pass_name="draft", pass_index=1)
    began = begin(1, admit(1, ONE), [scheduled(1, 4, 0)])
    return [engine(list_group()), began, target, draft, end(1)]


def flat_without_entries(second):
    """`second`: the part of the decode."""
    rows, later = two_prefills(), two_decodes()
    empty = flat_plan(None, [slot for row in rows for slot in written(row)])
    return [engine(flat_group()), *step(1, both(), rows, empty), *step(2, [], later, second(later))]


# a slot that no token has: an entry that is wrongly the sentinel is then no entry out of range
TRASH = 79


def with_sentinels(first_of_row_1):
    rows = [
        Row(1, ONE, 5, 1, [first_of_row_1, 5, 6, 7, 8, TRASH]),
        Row(2, TWO, 4, 1, [12, 13, 14, 15, TRASH]),
    ]
    return flat_with(lambda rows: flat(rows, sentinel=TRASH), rows)


def scaled(scale=1, stride=1, base=0, slots=None, entries=None):
    """A prefill of 5 and a decode in blocks 1 and 2. `slots`, `entries`: of the decode."""
    line = {**flat_group(), "index_scale": scale, "token_stride": stride, "slot_base": base}
    places = [b * 4 * scale + o * stride + base for b in ONE for o in range(4)]
    first, row = Row(1, ONE, 0, 5), Row(1, ONE, 5, 1)
    own = [places[5]] if slots is None else slots
    read = places[:6] if entries is None else entries
    return [
        engine(line), *step(1, admit(1, ONE), [first], flat_plan([places[:5]], places[:5])),
        *step(2, admit(2, TWO), [row], flat_plan([read], own)),
    ]  # fmt: skip


LISTS = {
    "csr-of-blocks": blocks_with(lambda rows: with_last(rows, 2, 1)),
    "csr-of-kernel-blocks": kernel_blocks_with(),
    "csr-of-slots": slots_with(),
    "csr-of-a-list-that-begins-behind-others": blocks_with(lambda rows: csr(rows, before=[9, 9])),
    "csr-without-lookahead": [
        engine(list_group()), *step(1, admit(1, ONE), [Row(1, ONE, 0, 4)], csr([Row(1, ONE, 0, 4)]))
    ],
    "csr-in-micro-batches": micro_batches(),
    "csr-of-a-draft-pass": draft_pass([1, 2]),
    "flat-of-slots": flat_with(),
    "flat-with-sentinels": with_sentinels(4),
    "flat-of-scaled-slots": scaled(6, base=100),
    "flat-of-strided-slots": scaled(3, 3),
    "scaled-slot-of-another-layer": scaled(6, base=100, slots=[153]),
    "scaled-slot-of-another-request": scaled(6, base=100, slots=[173]),
    "strided-slot-between-tokens": scaled(3, 3, slots=[28]),
    "scaled-slot-before-the-pool": scaled(6, base=100, slots=[99]),
    "scaled-list-not-scaled": scaled(6, base=100, entries=[104, 105, 106, 107, 108, 109]),
    "flat-empty-at-the-first-step": flat_without_entries(flat),
    "csr-entry-of-another-request": blocks_with(rows=one_of([1, 4])),
    "csr-two-entries-swapped": blocks_with(rows=one_of([2, 1])),
    "csr-in-the-wrong-unit": kernel_blocks_with(rows=one_of([1, 2, 3])),
    "csr-null-entry": blocks_with(rows=one_of([1, 0])),
    "csr-entry-out-of-range": blocks_with(rows=one_of([1, 20])),
    "csr-row-too-short": blocks_with(lambda rows: csr(rows, offsets=[0, 1, 4])),
    "csr-row-too-long": [
        engine(list_group()),
        *step(1, admit(1, ONE), [Row(1, ONE, 0, 4)], csr([Row(1, ONE, 0, 4, [1, 2])])),
    ],
    "csr-offsets-fall": blocks_with(lambda rows: csr(rows, offsets=[0, 2, 1])),
    "csr-offsets-leave-the-list": blocks_with(lambda rows: csr(rows, offsets=[0, 2, 5])),
    "B106-offsets-counted-in-pages": slots_with(
        lambda rows: csr(rows, unit=1, offsets=[0, 2, 4])
    ),
    "B018-draft-list-of-the-target": draft_pass([1]),
    "csr-last-page-off-by-one": blocks_with(lambda rows: with_last(rows, 1, 1)),
    "csr-last-page-zero": [
        engine(list_group()),
        *step(1, both(), two_prefills(), with_last(two_prefills(), 1, 0)),
    ],
    "flat-slot-of-another-request": flat_with(rows=one_of([4, 5, 14, 7, 8, 9])),
    "flat-sentinel-for-an-old-token": with_sentinels(TRASH),
    "flat-one-token-missing": flat_with(rows=one_of([4, 5, 6, 7, 8])),
    "flat-empty-at-a-later-step": flat_without_entries(
        lambda rows: flat_plan(None, [slot for row in rows for slot in written(row)])
    ),
}  # fmt: skip


# rings of 8 tokens


def rings(*rows, first=6, columns=ONE, **fields):
    """A prefill of 6 (or as said), then these rows, a step each."""
    prefill = Row(1, ONE, 0, first)
    lines = [ring_engine(), *step(1, admit(1, columns), [prefill], ring([prefill], **fields))]
    for number, row in enumerate(rows, start=2):
        lines += step(number, [], [row], ring([row], **fields))
    return lines


def decodes(first, count):
    return [Row(1, ONE, at, 1) for at in range(first, first + count)]


def long_prefill(trash, slots=None):
    """13 tokens of which the first 5 are clipped."""
    row = Row(1, ONE, 0, 13, slots=slots)
    used = PAD if trash == PAD else trash
    return [
        ring_engine(trash=trash), *step(1, admit(1, ONE), [row], ring([row], trash=used)),
        *step(2, [], decodes(13, 1), ring(decodes(13, 1))),
    ]  # fmt: skip


def window_of_six():
    lines = [ring_engine(window=6)]
    rows = [Row(1, ONE, 0, 5), *decodes(5, 9)]
    for number, row in enumerate(rows, start=1):
        events = admit(1, ONE) if number == 1 else []
        lines += step(number, events, [row], ring([row], window=6))
    return lines


def beside_full():
    lines = [engine(group(max_columns=8), ring_group(id=1))]
    for number, (start, tokens) in enumerate([(0, 6), (6, 1), (7, 1), (8, 1), (9, 1)], start=1):
        full, own = Row(1, [5, 6, 7], start, tokens), Row(1, ONE, start, tokens)
        events = admit(1, [5, 6, 7], ONE) if number == 1 else []
        lines += step(number, events, [full], table([full]), ring([own], own=1))
    return lines


def pads_on_the_trash():
    row = Row(1, ONE, 0, 2)
    part = flat_plan([listed_of_ring(row)], [4, 5, 80, PAD, 80])
    return [ring_engine(trash=80), *step(1, admit(1, ONE), [row], part, padded_tokens=5)]


def given_away():
    lines = rings(*decodes(6, 1))
    row = Row(2, ONE, 0, 3)
    return [*lines, *step(3, [event("finish", 1), *admit(2, ONE)], [row], ring([row]))]


def went_back(tokens):
    """After 11 tokens."""
    lines = rings(*decodes(6, 5))
    back = decodes(11 - tokens, 1)
    return [*lines, *step(7, [event("rollback", 1, count=tokens)], back, ring(back))]


def computed_anew():
    lines = rings(*decodes(6, 6))
    for number, row in enumerate([Row(1, ONE, 0, 6), *decodes(6, 4)], start=8):
        back = [event("rollback", 1, count=12)] if row.start == 0 else []
        lines += step(number, back, [row], ring([row]))
    return lines


def went_back_twice():
    lines = rings(*decodes(6, 6))
    back = [(1, Row(1, ONE, 11, 1)), (0, Row(1, ONE, 12, 1)), (3, Row(1, ONE, 10, 1))]
    for number, (tokens, row) in enumerate(back, start=8):
        events = [event("rollback", 1, count=tokens)] if tokens else []
        lines += step(number, events, [row], ring([row]))
    return lines


def into_the_trash():
    row = Row(1, ONE, 0, 2, slots=[4, 80])
    return [ring_engine(trash=80), *step(1, admit(1, ONE), [row], ring([row]))]


def third_block():
    """A block of the raw column, which is the next request's."""
    lines = rings(*decodes(6, 2))
    row = Row(1, ONE, 8, 1, slots=[12])
    return [*lines, *step(4, admit(2, TWO), [row], ring([row]))]


def listing(entries):
    """A decode at 11 with another list."""
    return rings(*decodes(6, 5), Row(1, ONE, 11, 1, entries))


# of a decode at 11: positions 4 to 10 stand at ring positions 4..7, 0..2
RIGHT = [8, 9, 10, 11, 4, 5, 6, SENTINEL]

RINGS = {
    "ring-decode-past-its-window": rings(*decodes(6, 10)),
    "ring-prefill-longer-than-the-window": long_prefill(trash=80),
    "ring-clipped-to-the-pad-slot": long_prefill(trash=PAD),
    "ring-window-no-multiple-of-its-block": window_of_six(),
    "ring-beside-full": beside_full(),
    "ring-no-more-columns": rings(*decodes(6, 20)),
    "ring-pads-on-the-write-trash": pads_on_the_trash(),
    "ring-given-away-at-the-end": given_away(),
    "ring-of-a-request-that-went-back-a-little": went_back(1),
    "ring-computed-anew-from-the-start": computed_anew(),
    "B080-slot-of-the-raw-column": third_block(),
    "ring-slot-one-turn-late": rings(*decodes(6, 2), Row(1, ONE, 8, 1, slots=[11])),
    "ring-clipped-token-written": long_prefill(
        80, slots=[4, *[80] * 4, 9, 10, 11, 4, 5, 6, 7, 8]
    ),
    "ring-token-into-the-trash": into_the_trash(),
    "ring-capacity": [ring_engine(), begin(1, admit(1, [1]), [scheduled(1, 6, 0)]), end(1)],
    "ring-shared-block": [
        *rings(*decodes(6, 3)), begin(5, admit(2, ONE, first=8), [scheduled(2, 1, 8)]), end(5)
    ],
    "ring-list-one-position-late": listing([7, *RIGHT[:6], SENTINEL]),
    "ring-list-not-rotated": listing([4, 5, 6, 8, 9, 10, 11, SENTINEL]),
    "ring-list-of-the-whole-window": listing([7, *RIGHT]),
    "ring-list-one-token-too-many": listing([*RIGHT, SENTINEL]),
    "ring-list-with-another-sentinel": rings(*decodes(6, 10), sentinel=-2),
    "ring-list-without-the-sentinel": listing([*RIGHT[:7], -2]),
    "ring-list-without-sentinels": listing([*RIGHT[:7], 7]),
    "ring-went-back-twice": went_back_twice(),
    "ring-went-back-too-far": went_back(5),
}  # fmt: skip


# moves

FOUR = [5, 6]


def pages(flags=0):
    return engine(group(max_columns=8), flags=flags)


def two_requests(tokens=TOKENS, others=TOKENS, flags=0, lora=0, offset=0):
    """Requests 1 and 2 have computed 8 tokens each, in blocks 1, 2 and 3, 4."""
    first, second = known(admit(1, ONE, count=24), tokens), known(admit(2, TWO, count=24), others)
    if lora:
        second.append(event("domain", 2, other=LORA, value=lora, first=0, count=24))
    rows = [Row(1, ONE, 0, 8), Row(2, TWO, 0, 8)]
    return [pages(flags), *step(1, [*first, *second], rows, table(rows))]


def goes_on(number, blocks, *events, others=TWO, slot=None, listed=None):
    """Both decode; request 1 has `blocks` and one more."""
    rows = [Row(1, [*blocks, 9], 8, 1), Row(2, [*others, 10], 8, 1)]
    told = [*events, append(1, 9), append(2, 10)]
    part = table(rows)
    if listed:
        part["reads"]["table"]["rows"][0] = listed
    if slot is not None:
        part["slots"]["values"][0] = slot
    return step(number, told, rows, part)


def partly(reason_events, blocks, slot):
    """Request 1 has computed 6 tokens, and goes on in its second block after the move."""
    first, row = Row(1, ONE, 0, 6), Row(1, blocks, 6, 1, slots=slot)
    return [
        pages(), *step(1, admit(1, ONE), [first], table([first])),
        *step(2, reason_events, [row], table([row])),
    ]  # fmt: skip


def cached(hit):
    """Request 1 has left; its first block moves; request 2 hits it, or what was there."""
    gone = [event("finish", 1), remap(MOVE, 1, 7)]
    row = Row(3, [hit, 9], 4, 1)
    events = known(admit(3, [hit, 9], first=4, count=24), TOKENS)
    return [
        *two_requests(flags=FILLS_TOLD), *step(2, [*gone, *events], [row], table([row]))
    ]  # fmt: skip


def swapped():
    rows = [Row(1, [3, 4, 9], 8, 1), Row(2, [1, 2, 10], 8, 1)]
    events = [remap(SWAP, 1, 3, 4, 2), append(1, 9), append(2, 10)]
    return [*two_requests(), *step(2, events, rows, table(rows))]


def deduped(blocks, *events, **fields):
    """What request 2 then has."""
    return [*two_requests(**fields), *goes_on(2, ONE, *events, others=blocks)]


def not_full():
    """Request 2 has computed 6 tokens: its second block is still written."""
    rows = [Row(1, ONE, 0, 8), Row(2, TWO, 0, 6)]
    return [
        pages(), *step(1, both(), rows, table(rows)),
        begin(2, [remap(DEDUPE, 4, 2)], []), end(2),
    ]  # fmt: skip


MOVES = {
    "moved": [*two_requests(), *goes_on(2, [5, 6], remap(MOVE, 1, 5, 2, 6))],
    "moved-onto-one-another": [
        *two_requests(), *goes_on(2, [2, 5], remap(MOVE, 1, 2, 2, 5))
    ],
    "moved-cached-block": cached(7),
    "swapped": swapped(),
    "deduped": deduped(ONE, remap(DEDUPE, 3, 1, 4, 2)),
    "table-before-the-move": [
        *two_requests(), *goes_on(2, [5, 6], remap(MOVE, 1, 5, 2, 6), listed=[1, 2, 9])
    ],
    "slot-before-the-move": partly([remap(MOVE, 2, 6)], [1, 6], [10]),
    "moved-onto-a-held-block": [*two_requests(), *goes_on(2, [3, 2], remap(MOVE, 1, 3))],
    "deduped-with-other-tokens": deduped(
        [1, 4], remap(DEDUPE, 3, 1), others=[100, 101, 102, 7, *TOKENS[4:]]
    ),
    "deduped-with-another-lora": deduped([1, 4], remap(DEDUPE, 3, 1), lora=7),
    "deduped-at-another-column": deduped([2, 4], remap(DEDUPE, 3, 2)),
    "deduped-while-written": not_full(),
    "deduped-onto-its-own-row": [
        *two_requests(), begin(2, [remap(DEDUPE, 1, 2)], []), end(2)
    ],
    "hit-on-the-old-block": cached(1),
    "B129-sent-from-the-old-blocks": [
        *two_requests(),
        begin(2, [remap(MOVE, 1, 5, 2, 6), transfer("send-pending", 1, 1, 2, request=1)], []),
        end(2),
    ],
    "move-out-of-range": [*two_requests(), *goes_on(2, ONE, remap(MOVE, 1, 20))],
}  # fmt: skip


# cells

SIX = [7, 3, 11, 5, 0, 9]
OTHER = [1, 14, 2]


def cells(rows):
    return flat(rows, size=1)


def scattered():
    row = Row(1, SIX, 0, 6)
    return [cell_engine(), *step(1, admit(1, SIX), [row], cells([row]))]


def then(number, events, *rows):
    return step(number, events, list(rows), cells(list(rows)))


def shift():
    return [erase(1, 0, 2), rebase(1, 2, 4, -2)]


def in_the_middle(listed=None):
    row = Row(1, [*SIX, 12], 6, 1, listed, holes=[2, 3])
    return [*scattered(), *then(2, [erase(1, 2, 2), append(1, 12)], row)]


def two_rows(listed=None):
    rows = [Row(1, [*SIX, 12], 6, 1, listed), Row(2, OTHER, 0, 3)]
    return [*scattered(), *then(2, [append(1, 12), *admit(2, OTHER)], *rows)]


def shared():
    second = Row(2, [*SIX[:4], 1, 14], 4, 2)
    lines = [*scattered(), *then(2, admit(2, second.blocks, first=4), second)]
    for number, key, row in [
        (3, 1, Row(1, [*SIX, 12], 6, 1, holes=[0, 1, 2, 3])),
        (4, 2, Row(2, [*second.blocks, 13], 6, 1, holes=[0, 1, 2, 3])),
    ]:
        lines += then(number, [erase(key, 0, 4), append(key, row.blocks[-1])], row)
    return lines


def nine_tokens(*events, counted):
    nine = Row(1, [*SIX, *OTHER], 0, 9)
    return [
        cell_engine(), *step(1, admit(1, nine.blocks), [nine], cells([nine])),
        *runs(2, 1, 1, counted, *events, append(1, 17)),
    ]  # fmt: skip


SHIFTED = [11, 5, 0, 9]

CELLS = {
    "cells-in-any-order": two_rows(),
    "cells-context-shift": [
        *scattered(),
        *then(2, [*shift(), append(1, 7)], Row(1, [*SHIFTED, 7], 4, 1)),
        *then(3, [append(1, 3)], Row(1, [*SHIFTED, 7, 3], 5, 1)),
    ],
    "cells-erased-in-the-middle": in_the_middle(),
    "cells-erased-at-the-end": [
        *scattered(), *then(2, [erase(1, 4, 2), append(1, 12, 9)], Row(1, [*SIX[:4], 12, 9], 4, 2))
    ],
    "cells-freed-and-taken": [
        *scattered(), *then(2, [erase(1, 0, 2), *admit(2, [7, 3])], Row(2, [7, 3], 0, 2))
    ],
    "cells-shared-prefix": shared(),
    "B016-erased-in-coordinates-before-the-shift": nine_tokens(
        erase(1, 0, 3), rebase(1, 3, 6, -3), erase(1, 3, 3), counted=6
    ),
    "B017-cell-of-another-request": two_rows([7, 3, 2, 5, 0, 9, 12]),
    "B097-batch-behind-a-gap": [*scattered(), *runs(2, 1, 1, 7, append(1, 12, 13))],
    "cells-hole-is-read": in_the_middle([*SIX, 12]),
    "cells-taken-while-held": [
        *scattered(), *then(2, [erase(1, 0, 1), *admit(2, [7, 3])], Row(2, [7, 3], 0, 2))
    ],
    "cells-written-at-the-old-place": [
        *scattered(), *then(2, [*shift(), append(1, 7)], Row(1, [*SHIFTED, 7], 4, 1, slots=[0]))
    ],
}  # fmt: skip

PROGRAMS = {"list": LISTS, "ring": RINGS, "move": MOVES, "cell": CELLS}
