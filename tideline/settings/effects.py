"""Finds when a change of the settings file takes effect in a running worker: declared with each
setting.

A section declares it for its keys, and a key that differs in its annotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tideline.settings import PublishSettings, Settings, TableSettings, settings_model
from tideline.settings.aggregates import AggregateSettings
from tideline.settings.base import Effect, Section

ENTRIES: Mapping[str, type[Section]] = {
    "tables": TableSettings,
    "aggregates": AggregateSettings,
    "publish": PublishSettings,
}
"""The sections whose keys are patterns of tables, or names; each entry has a section's keys."""


def effects() -> Mapping[str, Effect]:
    """Return the effects by key, as in ``capture.heartbeat_s``; those of a table as in
    ``tables.mode``, those of a publisher as in ``publish.output``."""
    found = {}
    for name, one in settings_model().model_fields.items():
        inner = ENTRIES.get(name) or section_of(one)
        if inner is None:
            found[name] = _own(one, Effect.RESTART)
        else:
            found |= {f"{name}.{key}": effect for key, _, effect in keys_of(inner)}
    return found


def keys_of(section: type[BaseModel]) -> Iterator[tuple[str, FieldInfo, Effect]]:
    """Yield the keys of a section, those of sections within it too, and when each takes effect."""
    for name, one in section.model_fields.items():
        inner = section_of(one)
        if inner is None:
            yield name, one, effect_of(section, name)
        else:
            yield from ((f"{name}.{key}", field, effect) for key, field, effect in keys_of(inner))


def effect_of(section: type[BaseModel], name: str) -> Effect:
    """Return when a key of the section takes effect: as the key or the section declares it, which
    is the base that the key comes from where there is one."""
    bases = [one for one in section.__mro__ if issubclass(one, Section)]
    declared = [one.effect for one in bases if name in one.model_fields and "effect" in vars(one)]
    return _own(section.model_fields[name], declared[-1] if declared else Effect.RESTART)


def section_of(one: FieldInfo) -> type[Section] | None:
    """Return the section that a field is; None for a key."""
    kind = one.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def followed(current: Settings, read: Settings) -> Settings:
    """Return ``read``, except what a worker that began with ``current`` cannot follow."""
    kept: dict[str, Any] = {}
    for name, one in type(read).model_fields.items():
        section = section_of(one)
        if section is not None:
            mine = getattr(current, name)
            fixed = {key: getattr(mine, key) for key in _fixed(section)}
            kept[name] = getattr(read, name).model_copy(update=fixed)
        elif name not in ENTRIES:
            kept[name] = getattr(current, name)
    return read.model_copy(update=kept)


def waiting(current: Settings, read: Settings) -> tuple[str, ...]:
    """Return the keys that differ in ``read`` and take effect after a restart only. Never a
    value."""
    found = []
    for name, one in type(read).model_fields.items():
        section = section_of(one)
        mine, theirs = getattr(current, name), getattr(read, name)
        if section is not None:
            differ = (key for key in _fixed(section) if getattr(mine, key) != getattr(theirs, key))
            found += [f"{name}.{key}" for key in differ]
        elif name not in ENTRIES and mine != theirs:
            found.append(name)
    return tuple(found)


def _fixed(section: type[Section]) -> list[str]:
    return [name for name in section.model_fields if effect_of(section, name) is Effect.RESTART]


def _own(one: FieldInfo, otherwise: Effect) -> Effect:
    return next((found for found in one.metadata if isinstance(found, Effect)), otherwise)
