# SPDX-License-Identifier: Apache-2.0
"""Gives every child process of the rig (engine core, workers) what this one has: the Triton
interpreter, and asynchronous scheduling where it is asked for.

Python runs this at start when the folder is first on PYTHONPATH. The work waits for the first
import of vllm, so other Python programs of the same environment start as fast as ever.
"""

import os
import sys
from importlib.abc import MetaPathFinder


class _BeforeVllm(MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Finds nothing: the import goes on as usual, a little later."""
        if fullname == "vllm":
            sys.meta_path.remove(self)
            import keep_async
            import triton_interp  # noqa: F401  imported for its effect

            keep_async.install()


if os.environ.get("KVGUARD_RIG") == "1":
    sys.meta_path.insert(0, _BeforeVllm())
