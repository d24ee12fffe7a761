"""Makes an operator's arguments from the options that a request declares
(`tideline.contract.options`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from tideline.contract.options import Option, OptionKind
from tideline_airflow.scope import (
    choice_of,
    decimal_of,
    flag_of,
    key_of,
    key_range_of,
    keys_of,
    number_of,
    time_range_of,
)

Init = Callable[..., None]
RENDERED = frozenset({OptionKind.NUMBER, OptionKind.DECIMAL, OptionKind.FLAG})
"""Kinds whose values may be templates: Airflow keeps and shows what it renders, so none with values
of rows, and native rendering takes a text for a number."""


def takes(options: Sequence[Option]) -> Callable[[Init], Init]:
    """Give an operator's ``__init__`` an argument for each of ``options``, which it keeps as an
    attribute of that name: a value, a template of a number, or a function of the context."""

    def decorate(init: Init) -> Init:
        @wraps(init)
        def made(self: Any, *args: Any, **given: Any) -> None:
            chosen = {option.name: given.pop(option.name, None) for option in options}
            init(self, *args, **given)
            for name, value in chosen.items():
                setattr(self, name, value)

        own = list(inspect.signature(init, eval_str=True).parameters.values())
        keyword = inspect.Parameter.KEYWORD_ONLY
        own[-1:-1] = [
            inspect.Parameter(option.name, keyword, default=None, annotation=Any)
            for option in options
        ]
        made.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        return made

    return decorate


def templates(options: Sequence[Option]) -> tuple[str, ...]:
    """Return the names of the options that may be templates."""
    return tuple(option.name for option in options if option.kind in RENDERED)


def value_of(option: Option, given: Any, columns: int | None) -> Any:
    """Parse ``given`` as a value of ``option``, for a key of ``columns`` columns (None: not
    known)."""
    if given is None or given == "":
        return option.default
    return VALUES[option.kind](option, given, columns)


VALUES: Mapping[OptionKind, Callable[[Option, Any, int | None], Any]] = {
    OptionKind.NUMBER: lambda option, given, _: number_of(option.name, given),
    OptionKind.DECIMAL: lambda option, given, _: decimal_of(option.name, given),
    OptionKind.FLAG: lambda _, given, __: flag_of(given),
    OptionKind.TEXT: lambda _, given, __: str(given),
    OptionKind.CHOICE: lambda option, given, _: choice_of(option, given),
    OptionKind.KEY: lambda option, given, columns: key_of(given, option.name, columns),
    OptionKind.KEYS: lambda _, given, columns: keys_of(given, columns),
    OptionKind.KEY_RANGE: lambda _, given, columns: key_range_of(given, columns),
    OptionKind.TIME_RANGE: lambda _, given, __: time_range_of(given),
}
