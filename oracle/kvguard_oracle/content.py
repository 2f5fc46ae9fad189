# SPDX-License-Identifier: Apache-2.0
"""What is known of a request's tokens, and what a block holds. judging.md, Content; no rule."""

from __future__ import annotations

from dataclasses import dataclass, field

# kvguard.h, kvguard_domain_kind
LORA, ENCODER, SALT = 1, 4, 5
# of these every marked position is marked alike
ALIKE = (LORA, SALT)

# kind, value, distance from `first` (None: every position alike)
Mark = tuple[int, int, int | None]


@dataclass(frozen=True)
class Domain:
    """A DOMAIN event."""

    kind: int
    value: int
    first: int
    count: int

    def mark(self, position: int) -> Mark:
        distance = None if self.kind in ALIKE else position - self.first
        return (self.kind, self.value, distance)


@dataclass
class Content:
    """Tokens from a request's beginning on, and how each position is marked."""

    tokens: list[int]
    marks: list[set[Mark]]


@dataclass
class Knowledge:
    """What is known of one request."""

    tokens: list[int] = field(default_factory=list)
    domains: list[Domain] = field(default_factory=list)
    # what is told from now on does not continue what is known
    ended: bool = False

    def forget(self) -> None:
        """How the tokens are marked is not known any more."""
        self.tokens = []
        self.ended = True

    def sampled(self, position: int | None, tokens: list[int], num_sampled: int) -> None:
        """What an OUTCOME row tells; position of the first, None: the start is not known."""
        if num_sampled == 0 and not tokens:
            return
        if position != len(self.tokens) or num_sampled > len(tokens):
            self.ended = True
        if not self.ended:
            self.tokens += tokens

    def marks_of(self, position: int) -> set[Mark]:
        return {
            domain.mark(position)
            for domain in self.domains
            if domain.first <= position < domain.first + domain.count
        }

    def up_to(self, end: int) -> Content | None:
        """None: not known that far."""
        if len(self.tokens) < end:
            return None
        return Content(self.tokens[:end], [self.marks_of(position) for position in range(end)])


@dataclass
class BlockContent:
    """Of a block that was bound as fresh, or that a LOAD was done into, whichever is later."""

    # the end of its column, in tokens
    end: int
    # the request that bound it as fresh and still claims it; None: it has left, or a LOAD came
    binder: int | None = None
    loaded: bool = False
    # nobody was seen to bind or load it: its first reader says what it holds
    nobody: bool = False
    # its column was filled when the claim ended
    filled: bool = False
    # what is left, or was loaded, or what the first reader says
    kept: Content | None = None
