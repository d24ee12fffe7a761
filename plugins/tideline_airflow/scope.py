"""Parses what users write in a request: keys, ranges, numbers; errors say how to correct it.

No text here quotes a key: keys are row values, and an error ends in a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tideline.contract.errors import Misconfigured
from tideline.contract.options import Option, parse_choice
from tideline.contract.request import DumpRequest, KeyRange, TimeRange, check_request
from tideline.keys import Key, parse_line
from tideline_airflow.compat import AirflowFailException


def checked(request: DumpRequest) -> DumpRequest:
    """Return ``request``; fail the task for good when no worker would accept it."""
    try:
        check_request(request)
    except Misconfigured as error:
        raise AirflowFailException(f"{error}; correct it and trigger again") from None
    return request


def keys_of(given: Any, columns: int | None = None) -> tuple[Key, ...] | None:
    """Parse keys of a form or a caller, for a key of ``columns`` columns (None: not known).

    An entry is a line (`tideline.keys.parse_line`), a number, or a list of a text or number per
    column. Empty lines are skipped; nothing but empty lines gives None.
    """
    if isinstance(given, str):
        given = given.splitlines()
    if not isinstance(given, list | tuple):
        raise AirflowFailException('keys must be a list, such as ["17", "18"] or [["17", "2"]]')
    found = [_key(key, "keys", number, columns) for number, key in enumerate(given, start=1)]
    return tuple(key for key in found if key is not None) or None


def key_range_of(given: Any, columns: int | None = None) -> KeyRange | None:
    """Parse ``{"from": key, "to": key}``, or one of them; each is written as a key of `keys_of` is,
    or with its first columns only."""
    if not given:
        return None
    unknown = sorted(set(given) - {"from", "to"}) if isinstance(given, Mapping) else [""]
    if unknown:
        raise AirflowFailException('key_range must be {"from": key, "to": key}, or one of them')
    start, end = (key_of(given.get(end), f"key_{end}", columns) for end in ("from", "to"))
    return None if start is None and end is None else KeyRange(start, end)


def is_typed(*given: Any) -> bool:
    """Return whether any of ``given`` is a line, whose meaning depends on the key's number of
    columns."""
    return any(
        isinstance(value, str)
        or (isinstance(value, list) and any(isinstance(v, str) for v in value))
        for value in given
    )


def time_range_of(given: Any) -> TimeRange | None:
    """Parse ``{"column", "from", "to"}``, all three."""
    if not given:
        return None
    missing = [name for name in ("column", "from", "to") if not given.get(name)]
    if "column" in missing:
        raise AirflowFailException("name the time column: a range of time needs column, from, to")
    if missing:
        raise AirflowFailException(
            f"a range of time needs column, from and to: {' and '.join(missing)} must be given too"
        )
    return TimeRange(str(given["column"]), start=str(given["from"]), end=str(given["to"]))


def number_of(name: str, given: Any) -> int:
    """Parse a whole number, or a template that gave one."""
    try:
        if isinstance(given, bool):
            raise ValueError
        return int(given)
    except (TypeError, ValueError):
        raise AirflowFailException(f"{name} must be a whole number") from None


def decimal_of(name: str, given: Any) -> float:
    """Parse a number that need not be whole, or a template that gave one."""
    try:
        return float(given)
    except (TypeError, ValueError):
        raise AirflowFailException(f"{name} must be a number") from None


def choice_of(option: Option, given: Any) -> Any:
    """Parse one of the choices of ``option``."""
    try:
        return parse_choice(option, given)
    except Misconfigured as error:
        raise AirflowFailException(f"{error}; correct it and trigger again") from None


def flag_of(given: Any) -> bool:
    """Parse a truth value, or a template that gave one."""
    return str(given).lower() in ("true", "1")


def key_of(given: Any, name: str, columns: int | None) -> Key | None:
    """Parse a bound, which may name the first columns of a key only: any number of values will
    do."""
    if isinstance(given, str):
        return _line(given, name, 1, columns if columns == 1 else None)
    return None if given is None or given == [] else _listed(given, name)


def _key(given: Any, name: str, number: int, columns: int | None) -> Key | None:
    if isinstance(given, str):
        return _line(given, name, number, columns)
    return _listed(given, name)


def _line(given: str, name: str, number: int, columns: int | None) -> Key | None:
    try:
        return parse_line(given, number, columns)
    except Misconfigured as error:
        raise AirflowFailException(f"{name}, {error}; correct it and trigger again") from None


def _listed(given: Any, name: str) -> Key:
    parts = given if isinstance(given, list | tuple) else [given]
    if not parts or not all(isinstance(part, str | int) for part in parts):
        raise AirflowFailException(
            f"{name}: each key is a text or number, or a list of one per key column"
        )
    return tuple(str(part) for part in parts)
