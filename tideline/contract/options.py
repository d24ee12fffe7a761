"""Declares the options of a request that users may give: once, in the request's type.

A field of `tideline.contract.request.DumpRequest` with an `Option` in its annotation is an option
of ``tideline dump`` or ``tideline verify``, a field of the DAGs' forms, and an argument of the
Airflow operators, by the field's name. The field's type determines how each of them reads it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec.structs import replace

Purpose = Literal["dump", "verify"]
BOTH: tuple[Purpose, ...] = ("dump", "verify")
THROTTLE = "Throttle"
RANGE = "A range of rows"


class Option(msgspec.Struct, frozen=True):
    """A field that users fill in. A number is one of ``least`` to ``most``.

    ``purposes`` are those of the requests that users may give it for, ``section`` where forms show
    it. ``empty`` says what its absence means. The rest follows from the field: its ``name``, the
    type of its values (``kind``), its ``default``, and the ``parts`` of a type that itself has
    fields with titles.
    """

    title: str
    help: str
    least: int | None = None
    most: int | None = None
    purposes: tuple[Purpose, ...] = BOTH
    section: str = THROTTLE
    empty: str = ""
    name: str = ""
    kind: Any = None
    default: Any = None
    parts: tuple[Option, ...] = ()


@cache
def options_of(message: type[msgspec.Struct], purpose: Purpose | None = None) -> tuple[Option, ...]:
    """List the options that ``message`` declares, in its order; of one ``purpose``, or of all."""
    hints = typing.get_type_hints(message, include_extras=True)
    fields = {field.name: field for field in msgspec.structs.fields(message)}
    found = []
    for name, hint in hints.items():
        for option in _declared(hint):
            kind = _kind(hint)
            field = fields[name]
            parts = options_of(kind) if _is_struct(kind) else ()
            default = None if field.default is msgspec.NODEFAULT else field.default
            found.append(
                replace(option, name=field.encode_name, kind=kind, default=default, parts=parts)
            )
    return tuple(one for one in found if purpose is None or purpose in one.purposes)


def limit_rules(message: object, declared: type[msgspec.Struct]) -> Iterator[tuple[bool, str]]:
    """Yield whether each number of ``message`` breaks its limits in ``declared``, and the rule."""
    for option in options_of(declared):
        value = getattr(message, option.name, None)
        if isinstance(value, int) and option.least is not None and option.most is not None:
            broken = not option.least <= value <= option.most
            yield broken, f"{option.name} must be {option.least} to {option.most}"


def _declared(hint: Any) -> list[Option]:
    if get_origin(hint) is not Annotated:
        return []
    return [one for one in hint.__metadata__ if isinstance(one, Option)]


def _kind(hint: Any) -> Any:
    """Find the type of a field's values: without None, and of a list the list."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (types.UnionType, typing.Union):
        [hint] = [one for one in get_args(hint) if one is not type(None)]
    return get_origin(hint) or hint


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
