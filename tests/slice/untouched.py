# SPDX-License-Identifier: Apache-2.0
"""Whether vLLM's modules and classes are what they were: the guard may touch instances of its own
only, never a module and never a class."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

PACKAGE = "vllm"
CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    classmethod,
    staticmethod,
    property,
    type,
)


def modules() -> dict[str, types.ModuleType]:
    """The loaded modules of the package."""
    return {
        name: module
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType)
        and (name == PACKAGE or name.startswith(f"{PACKAGE}."))
    }


def is_code(value: Any) -> bool:
    """Functions, methods, classes and what stands for them, such as a jitted kernel."""
    return isinstance(value, CODE) or (callable(value) and not isinstance(value, types.ModuleType))


def attributes() -> Iterator[tuple[str, Any]]:
    """Every attribute of every module, and of every class that the package defines, by path."""
    for name, module in modules().items():
        for key, value in list(vars(module).items()):
            yield f"{name}:{key}", value
            if isinstance(value, type) and value.__module__ == name:
                yield from class_attributes(f"{name}:{key}", value)


def class_attributes(path: str, cls: type) -> Iterator[tuple[str, Any]]:
    yield f"{path}.__bases__", cls.__bases__
    for key, value in list(vars(cls).items()):
        yield f"{path}.{key}", value
        if isinstance(value, type) and value.__qualname__ == f"{cls.__qualname__}.{key}":
            yield from class_attributes(f"{path}.{key}", value)


@dataclass
class Snapshot:
    """The objects themselves: an id alone could come back as another object's."""

    objects: dict[str, Any] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)

    @classmethod
    def take(cls) -> Snapshot:
        return cls(dict(attributes()), set(modules()))

    def differences(self, later: Snapshot, code_only: bool = False) -> list[str]:
        """What changed in the modules that were there. A module that was loaded since is news of
        the engine's own, and so is its name in its parent. code_only: functions, methods and
        classes."""
        told = []
        for path, before in self.objects.items():
            if code_only and not is_code(before):
                continue
            if path not in later.objects:
                told.append(f"{path} is gone")
            elif not same(before, later.objects[path]):
                told.append(f"{path} was {before!r:.80} and is {later.objects[path]!r:.80}")
        for path, after in later.objects.items():
            if path in self.objects or path.partition(":")[0] not in self.modules:
                continue
            if isinstance(after, types.ModuleType) or (code_only and not is_code(after)):
                continue
            told.append(f"{path} is new: {after!r:.80}")
        return told


def same(before: Any, after: Any) -> bool:
    """One object; tuples (bases) are made anew on every look."""
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        return all(a is b for a, b in zip(before, after, strict=True))
    return before is after


def owner_of(value: Any) -> str:
    """The module that an object says it comes from. Only code is asked: anything else may do
    something when it is looked at."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, (classmethod, staticmethod, types.MethodType)):
        value = value.__func__
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return value.__module__ or ""
    return type(value).__module__


def foreign(package: str = "kvguard") -> list[str]:
    """Attributes of the package's modules and classes that come from another one."""
    return [
        f"{path} is {value!r:.80}"
        for path, value in attributes()
        if owner_of(value).split(".")[0] == package
    ]


def displaced() -> set[str]:
    """Functions and classes that say that a module defines them, while the module has another
    object under their name. vLLM has a few of its own; they are the same without the guard."""
    told = set()
    loaded = modules()
    for path, value in attributes():
        if not isinstance(value, (types.FunctionType, type)):
            continue
        module, name = loaded.get(value.__module__ or ""), value.__qualname__
        if module is None or "<" in name:
            continue
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part, None) if found is not None else None
        found = getattr(found, "__func__", found)
        if found is not value:
            told.add(path)
    return told


@contextlib.contextmanager
def watched(calls: list[tuple[type, str]], log: list[str]) -> Iterator[None]:
    """Takes snapshots around each call of these methods of the guard's own classes, and logs
    `<name>: <differences>` for each, outermost last."""

    def wrap(owner: type, name: str) -> Callable[..., Any]:
        inner = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            before = Snapshot.take()
            try:
                return inner(*args, **kwargs)
            finally:
                log.append(f"{owner.__name__}.{name}: {before.differences(Snapshot.take())}")

        return call

    saved = [(owner, name, vars(owner)[name]) for owner, name in calls]
    try:
        for owner, name in calls:
            setattr(owner, name, wrap(owner, name))
        yield
    finally:
        for owner, name, value in saved:
            setattr(owner, name, value)
