# SPDX-License-Identifier: Apache-2.0
"""What a request's encoder gives to CROSS groups. judging.md, Other passes; no rule."""

from __future__ import annotations

from kvguard_oracle.account import Account, Request
from kvguard_oracle.content import ENCODER
from kvguard_oracle.geometry import Group
from kvguard_oracle.view import KnownRow

MOST_TOKENS = 2**40


def encoder_tokens(request: Request) -> int:
    """E: only DOMAIN events of the record that admits the request are kept."""
    ends = [
        domain.first + domain.count
        for domain in request.knowledge.domains
        if domain.kind == ENCODER
    ]
    return min(max(ends, default=0), MOST_TOKENS)


def columns_of_encoder(request: Request, group: Group) -> int:
    return group.columns_for(encoder_tokens(request))


def columns_to_write(request: Request, group: Group) -> range:
    """The encoder's output is written once."""
    return range(0 if request.encoder_written else columns_of_encoder(request, group))


def has_output_to_write(request: Request) -> bool:
    return encoder_tokens(request) > 0 and not request.encoder_written


def has_encoder_length(row: KnownRow) -> bool:
    """As many tokens as the encoder has; later, none will do."""
    assert row.tokens is not None
    length = len(row.tokens)
    if length == 0 and row.request.encoder_written:
        return True
    return length == encoder_tokens(row.request)


def note_written(account: Account, key: int) -> None:
    """A step that ended, not abandoned; nothing takes it back."""
    account.requests[key].encoder_written = True
