# SPDX-License-Identifier: Apache-2.0
"""What the guard raises into a program that asked for it."""

from __future__ import annotations


class KVGuardError(RuntimeError):
    """A step violates the engine's own bindings. The text is the finding's line and its prose."""


class ConfigError(ValueError):
    """The guard's configuration cannot be used. The text names the key and what to do."""
