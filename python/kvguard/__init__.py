# SPDX-License-Identifier: Apache-2.0
"""kvguard: a sanitizer for the KV cache of LLM inference engines.

Importing this package costs nothing that an engine would notice: the extension module is loaded
when something of it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvguard.errors import ConfigError, KVGuardError

if TYPE_CHECKING:
    from kvguard._core import Error, Guard

__all__ = ["ConfigError", "Error", "Guard", "KVGuardError", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("Guard", "Error"):
        from kvguard import _core

        return getattr(_core, name)
    if name == "__version__":
        from kvguard import _core

        return _core.version
    raise AttributeError(f"module 'kvguard' has no attribute '{name}'")
