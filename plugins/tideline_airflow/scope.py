"""What people write, as a request: keys, ranges, numbers; what is wrong says how to mend it.

No text here quotes a key: keys are row values, and an error ends in a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from tideline.contract.errors import Misconfigured
from tideline.contract.request import DumpRequest, KeyRange, TimeRange, check_request

Key = tuple[str, ...]


def checked(request: DumpRequest) -> DumpRequest:
    """``request``; fails the task, which no retry mends, when no worker would take it."""
    try:
        check_request(request)
    except Misconfigured as error:
        raise AirflowFailException(f"{error}; correct it and trigger again") from None
    return request


def keys_of(given: Any) -> tuple[Key, ...] | None:
    """``"7"`` is the key of one column, ``["7", "2"]`` of two; None and [] are no keys."""
    if given is None or given == []:
        return None
    if not isinstance(given, list | tuple):
        raise AirflowFailException('keys must be a list, such as ["17", "18"] or [["17", "2"]]')
    return tuple(_key(key, "keys") for key in given)


def key_range_of(given: Any) -> KeyRange | None:
    """``{"from": key, "to": key}``, or one of them."""
    if not given:
        return None
    unknown = sorted(set(given) - {"from", "to"}) if isinstance(given, Mapping) else [""]
    if unknown:
        raise AirflowFailException('key_range must be {"from": key, "to": key}, or one of them')
    ends = [given.get("from"), given.get("to")]
    start, end = (None if end is None else _key(end, "key_range") for end in ends)
    return KeyRange(start, end)


def time_range_of(given: Any) -> TimeRange | None:
    """``{"column", "from", "to"}``, all three."""
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


def number_of(name: str, given: Any) -> int | None:
    """A number, or a template that gave one; None and the empty text are none."""
    if given is None or given == "":
        return None
    try:
        if isinstance(given, bool):
            raise ValueError
        return int(given)
    except (TypeError, ValueError):
        raise AirflowFailException(f"{name} must be a whole number") from None


def flag_of(given: Any) -> bool:
    """A truth value, or a template that gave one."""
    return str(given).lower() in ("true", "1")


def _key(given: Any, name: str) -> Key:
    parts = given if isinstance(given, list | tuple) else [given]
    if not parts or not all(isinstance(part, str | int) for part in parts):
        raise AirflowFailException(
            f"{name}: each key is a text or number, or a list of one per key column"
        )
    return tuple(str(part) for part in parts)
