# SPDX-License-Identifier: Apache-2.0
"""The three ways in which something is not judged."""


class UnreadableError(Exception):
    """The input is not what `trace dump --jsonl` prints (exit code 65)."""


class UnsupportedError(Exception):
    """docs/judging.md does not say how to judge this (exit code 2): never guess."""


class MalformedError(Exception):
    """One record contradicts kvguard.h: it moves nothing and is a step gap."""
