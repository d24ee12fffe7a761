"""Finds the key that an unknown one may mean: a typing error, or a key of another section."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

from pydantic import BaseModel


def nearest_key(settings: type[BaseModel], location: Sequence[int | str]) -> str | None:
    """Return the key of ``settings`` that the one at ``location`` may mean, as a path with dots.

    The nearest one in the same section, by its letters; else a key of exactly that name in another
    section. None when there is neither.
    """
    *above, name = [str(part) for part in location]
    section = _section_at(settings, above)
    near = difflib.get_close_matches(name, section.model_fields if section else (), n=1)
    if near:
        return ".".join([*above, near[0]])
    return next((".".join(path) for path in _paths(settings) if path[-1] == name), None)


def _section_at(settings: type[BaseModel], above: Sequence[str]) -> type[BaseModel] | None:
    """Return the section behind these keys; one that is kept by name (``tables``) takes any
    name."""
    found: type[BaseModel] | None = settings
    parts = list(above)
    while parts and found is not None:
        field = found.model_fields.get(parts.pop(0))
        kinds = [] if field is None else [field.annotation, *_arguments(field.annotation)]
        found = next((kind for kind in kinds if _is_section(kind)), None)
        if field is not None and found is not field.annotation and parts:
            parts.pop(0)
    return found


def _paths(section: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in section.model_fields.items():
        yield (*above, name)
        if _is_section(field.annotation):
            yield from _paths(field.annotation, (*above, name))


def _arguments(annotation: Any) -> Sequence[Any]:
    return getattr(annotation, "__args__", ())


def _is_section(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
