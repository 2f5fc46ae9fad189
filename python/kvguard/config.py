# SPDX-License-Identifier: Apache-2.0
"""Where the configuration comes from. What it may hold is one table, in the library; nothing of it
is repeated here."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvguard.errors import ConfigError

KEY = "kv_guard_config"
ENVIRONMENT = "KVGUARD_CONFIG"
STATUS_DIR = "KVGUARD_STATUS_DIR"


@dataclass(slots=True)
class Settings:
    """A checked configuration."""

    enabled: bool = False
    action: str = "raise"
    latch: bool = True
    self_test: bool = False
    core: dict[str, Any] = field(default_factory=dict)  # for kvguard.Guard
    record: str | None = None
    record_max_bytes: int = 0
    status: str | None = None
    status_interval_s: float = 2.0
    incident_dir: str = "."
    unavailable: str | None = None  # why the guard cannot run at all


def find(additional_config: Any, environ: Mapping[str, str]) -> tuple[str, Any] | None:
    """The configuration as it was given, and where: the engine's own option comes first."""
    if isinstance(additional_config, Mapping) and additional_config.get(KEY) is not None:
        return KEY, additional_config[KEY]
    text = environ.get(ENVIRONMENT, "").strip()
    return (ENVIRONMENT, text) if text else None


def _decode(source: str, given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        text = given
        if text.startswith("@"):
            try:
                with open(text[1:], encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeError) as error:
                raise ConfigError(
                    f"{source}: the file '{given[1:]}' cannot be read: {error}"
                ) from error
        try:
            given = json.loads(text)
        except ValueError as error:
            raise ConfigError(
                f"{source}: this is no JSON ({error}); give one object, for example "
                '{"enabled": true, "action": "raise"}, or @ and the path of a file that holds it'
            ) from error
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{source}: one JSON object is wanted, not {type(given).__name__}; for example "
            '{"enabled": true, "action": "raise"}'
        )
    return dict(given)


def read(additional_config: Any, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings. Where nothing is configured, or enabled is false, nothing else is looked at."""
    environ = os.environ if environ is None else environ
    found = find(additional_config, environ)
    if found is None:
        return Settings()
    source, given = found
    values = _decode(source, given)
    if values.get("enabled") is False:
        return Settings()
    try:
        from kvguard import _core
    except ImportError as error:
        # Nothing can be checked; what is needed to say so is taken as it is.
        status = values.get("status")
        return Settings(
            enabled=values.get("enabled") is True,
            status=status if isinstance(status, str) else None,
            unavailable=f"the extension module cannot be loaded: {error}",
        )
    try:
        text = json.dumps(values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{source}: not a JSON object: {error}") from error
    try:
        core = _core.parse_config(text)
    except _core.Error as error:
        raise ConfigError(f"{source}: {error}") from error
    properties = json.loads(_core.schema())["properties"]

    def value(key: str) -> Any:
        given_value = values.get(key)
        return properties[key].get("default") if given_value is None else given_value

    action = value("action")
    latch = values.get("latch")
    core["latch"] = int(action == "raise" if latch is None else latch)
    return Settings(
        enabled=bool(value("enabled")),
        action=action,
        latch=bool(core["latch"]),
        self_test=bool(value("self_test")),
        core=core,
        record=value("record"),
        record_max_bytes=int(value("record_max_bytes") or 0),
        status=value("status"),
        status_interval_s=float(value("status_interval_s")),
        incident_dir=value("incident_dir") or ".",
    )


def expand(path: str, rank: int) -> str:
    """%r is the rank, %p the process."""
    return path.replace("%r", str(rank)).replace("%p", str(os.getpid()))


def status_path(
    settings: Settings, rank: int, environ: Mapping[str, str] | None = None
) -> str | None:
    """Where this rank's status file is, or None."""
    environ = os.environ if environ is None else environ
    if settings.status:
        return expand(settings.status, rank)
    directory = environ.get(STATUS_DIR, "").strip()
    if not directory:
        return None
    return os.path.join(directory, f"kvguard-status-{os.getpid()}-{rank}.json")
