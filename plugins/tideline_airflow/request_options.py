"""Makes an operator's arguments from the options that a request declares
(`tideline.contract.options`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tideline.contract.options import Option
from tideline.contract.request import KeyRange, TimeRange
from tideline_airflow.scope import key_range_of, keys_of, number_of, time_range_of

Init = Callable[..., None]


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
    """Return the names of options without row values: Airflow keeps and shows what it renders."""
    return tuple(option.name for option in options if option.kind is int)


def value_of(option: Option, given: Any, columns: int | None) -> Any:
    """Parse ``given`` as a value of ``option``, for a key of ``columns`` columns (None: not
    known)."""
    if option.kind is KeyRange:
        return key_range_of(given, columns)
    if option.kind is TimeRange:
        return time_range_of(given)
    if option.kind is int:
        number = number_of(option.name, given)
        return option.default if number is None else number
    return keys_of(given, columns)
