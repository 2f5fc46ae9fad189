# SPDX-License-Identifier: Apache-2.0
"""Lets Triton's numpy interpreter pass for a CPU backend, so that vLLM selects Model Runner V2.

Import it before vllm, with TRITON_INTERPRET=1. The runner's own kernels run, unchanged; below are
one registration, one correction and three savings, all of them inside the interpreter.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import triton
import triton.backends as backends
import triton.language as tl
import triton.runtime.interpreter as interpreter

_PINNED = "3.9.0"
if triton.__version__ != _PINNED:
    raise ImportError(
        f"the rig changes internals of triton {_PINNED} and found {triton.__version__}; "
        "run scripts/setup_vllm.sh and use the environment it prints"
    )


class _InterpreterDriver:
    """What vLLM asks of a Triton driver: whether it is there."""

    @staticmethod
    def is_active() -> bool:
        return True


def _register_backend() -> None:
    backends.backends.setdefault(
        "cpu", backends.Backend(compiler=object, driver=_InterpreterDriver)
    )


def _accept_byte_masks() -> None:
    """A mask computed from a loaded boolean arrives as int8 or int32; its lowest bit counts.

    Compiled Triton truncates it to int1; the interpreter would hand it to numpy as it is.
    """
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def as_bool(mask: Any) -> None:
        if mask.data.dtype != np.bool_:
            mask.data = (mask.data & 1).astype(np.bool_)

    def masked_load(self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        as_bool(mask)
        return load(self, ptrs, mask, *rest)

    def masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        as_bool(mask)
        return store(self, ptrs, value, mask, *rest)

    builder.create_masked_load = masked_load
    builder.create_masked_store = masked_store


def _skip_overflow_checks() -> None:
    """Compiled kernels check no overflow either; here it cost a quarter of every step."""
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


def _remember_dtypes() -> None:
    """The interpreter rebuilds its table of numpy dtypes for every operation; build it once."""
    original = interpreter._get_np_dtype
    pointer = np.dtype(np.uint64)
    scalars: dict[str, np.dtype] = {}

    def np_dtype(dtype: Any) -> np.dtype:
        if isinstance(dtype, tl.block_type):
            dtype = dtype.element_ty
        if isinstance(dtype, tl.pointer_type):
            return pointer
        found = scalars.get(dtype.name)
        if found is None:
            found = scalars[dtype.name] = original(dtype)
        return found

    interpreter._get_np_dtype = np_dtype


def _remember_builtins() -> None:
    """Every launch searches triton.language for its builtins and wraps them; search once.

    A launch still installs and removes the wrappers. The first search of a package sees it
    without wrappers, because nothing else installs them.
    """
    semantic = interpreter.interpreter_semantic
    known: dict[int, list[tuple[str, Any, Callable[..., Any]]]] = {}

    def wrap(member: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return member(*args, **kwargs)

        return call

    def patch_builtin(package: Any, builder: Any, scope: Any) -> None:
        del builder  # the interpreter has a single one, which the semantic holds
        members = known.get(id(package))
        if members is None:
            members = known[id(package)] = [
                (name, member, wrap(member))
                for name, member in inspect.getmembers(package)
                if tl.core.is_builtin(member)
            ]
        for name, member, wrapper in members:
            if getattr(package, name) is member:
                scope.set_attr(package, name, wrapper)

    interpreter._patch_builtin = patch_builtin


_register_backend()
_accept_byte_masks()
_skip_overflow_checks()
_remember_dtypes()
_remember_builtins()
