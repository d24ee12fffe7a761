"""Declares the options of a request that users may give: once, in the request's type.

A field of `tideline.contract.request.DumpRequest` with an `Option` in its annotation is an option
of ``tideline dump`` or ``tideline verify``, a field of the DAGs' forms, and an argument of the
Airflow operators, by the field's name. The field's type determines its `OptionKind`, by which each
of them reads it: a field of a type that has none is refused.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec.structs import replace

from tideline.contract.errors import Misconfigured

Purpose = Literal["dump", "verify"]
BOTH: tuple[Purpose, ...] = ("dump", "verify")
THROTTLE = "Throttle"
RANGE = "A range of rows"


class OptionKind(StrEnum):
    """The kinds of values that options have. Each end has tables with a line for every kind."""

    NUMBER = "number"
    DECIMAL = "decimal"
    FLAG = "flag"
    TEXT = "text"
    CHOICE = "choice"
    KEY = "key"
    KEYS = "keys"
    KEY_RANGE = "key range"
    TIME_RANGE = "time range"


_KINDS: Mapping[Any, OptionKind] = {
    int: OptionKind.NUMBER,
    float: OptionKind.DECIMAL,
    bool: OptionKind.FLAG,
    str: OptionKind.TEXT,
    tuple[str, ...]: OptionKind.KEY,
    tuple[tuple[str, ...], ...]: OptionKind.KEYS,
}
"""By type; a StrEnum or a Literal is a `CHOICE`."""
_OF_PARTS: Mapping[tuple[tuple[str, OptionKind], ...], OptionKind] = {
    (("from", OptionKind.KEY), ("to", OptionKind.KEY)): OptionKind.KEY_RANGE,
    (
        ("column", OptionKind.TEXT),
        ("from", OptionKind.TEXT),
        ("to", OptionKind.TEXT),
    ): OptionKind.TIME_RANGE,
}
"""By the names and kinds of a struct's fields."""


class Option(msgspec.Struct, frozen=True):
    """A field that users fill in. A number is one of ``least`` to ``most``.

    ``purposes`` are those of the requests that users may give it for, ``section`` where forms show
    it. ``empty`` says what its absence means. The rest follows from the field: its ``name``, the
    type of its values (``value_type``) and their ``kind``, its ``default``, the ``parts`` of a type
    that itself has fields with titles, and the ``choices`` of one that has few values.
    """

    title: str
    help: str
    least: float | None = None
    most: float | None = None
    purposes: tuple[Purpose, ...] = BOTH
    section: str = THROTTLE
    empty: str = ""
    name: str = ""
    value_type: Any = None
    kind: OptionKind = OptionKind.TEXT
    default: Any = None
    parts: tuple[Option, ...] = ()
    choices: tuple[str, ...] = ()


@cache
def options_of(message: type[msgspec.Struct], purpose: Purpose | None = None) -> tuple[Option, ...]:
    """List the options that ``message`` declares, in its order; of one ``purpose``, or of all.
    TypeError for one of a type that no kind has."""
    hints = typing.get_type_hints(message, include_extras=True)
    fields = {field.name: field for field in msgspec.structs.fields(message)}
    found = []
    for name, hint in hints.items():
        for option in _declared(hint):
            field, value_type = fields[name], _value_type(hint)
            parts = options_of(value_type) if _is(value_type, msgspec.Struct) else ()
            choices = _choices(value_type)
            default = None if field.default is msgspec.NODEFAULT else field.default
            kind = OptionKind.CHOICE if choices else _kind(value_type, parts)
            if kind is None or (kind is OptionKind.CHOICE and default is None):
                lacks = "a default" if choices else f"a kind of option: {value_type}"
                raise TypeError(f"{message.__name__}.{name} lacks {lacks}")
            found.append(
                replace(
                    option,
                    name=field.encode_name,
                    value_type=value_type,
                    kind=kind,
                    default=default,
                    parts=parts,
                    choices=choices,
                )
            )
    return tuple(one for one in found if purpose is None or purpose in one.purposes)


def limit_rules(message: object, declared: type[msgspec.Struct]) -> Iterator[tuple[bool, str]]:
    """Yield whether each number of ``message`` breaks its limits in ``declared``, and the rule."""
    for option in options_of(declared):
        value = getattr(message, option.name, None)
        if isinstance(value, int | float) and option.least is not None and option.most is not None:
            broken = not option.least <= value <= option.most
            yield broken, f"{option.name} must be {option.least} to {option.most}"


def _declared(hint: Any) -> list[Option]:
    if get_origin(hint) is not Annotated:
        return []
    return [one for one in hint.__metadata__ if isinstance(one, Option)]


def parse_choice(option: Option, given: object) -> Any:
    """Parse one of the choices as it is typed; Misconfigured for another text."""
    if str(given) not in option.choices:
        raise Misconfigured(f"{option.name} must be one of: {', '.join(option.choices)}")
    return option.value_type(given) if _is(option.value_type, StrEnum) else given


def _value_type(hint: Any) -> Any:
    """Find the type of a field's values, without None."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (types.UnionType, typing.Union):
        [hint] = [one for one in get_args(hint) if one is not type(None)]
    return hint


def _kind(value_type: Any, parts: tuple[Option, ...]) -> OptionKind | None:
    if parts:
        return _OF_PARTS.get(tuple((part.name, part.kind) for part in parts))
    return _KINDS.get(value_type)


def _choices(value_type: Any) -> tuple[str, ...]:
    if get_origin(value_type) is Literal:
        return get_args(value_type)
    return tuple(value_type) if _is(value_type, StrEnum) else ()


def _is(value_type: Any, base: type) -> bool:
    return isinstance(value_type, type) and issubclass(value_type, base)
