"""Matches tables with a list of patterns.

A pattern is ``schema.table``. In each part ``*``, ``?`` and ``[…]`` work as in a shell; a part in
double quotes is taken word for word (``"`` doubled inside). Matching is case-sensitive: the names
are the catalog's. A schema given as ``*`` leaves out the system's schemas, any other pattern
is taken literally.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId

_PART = r'(?:"(?:[^"]|"")+"|[^."\s]+)'
_PATTERN = re.compile(rf"(?P<schema>{_PART})\.(?P<table>{_PART})")
_SHOWN_MAX = 10
_SHOWN_CHARACTERS = 200
_SYSTEM_SCHEMA = re.compile(r"pg_catalog|information_schema|pg_toast.*|pg_temp.*")


class PatternPart(NamedTuple):
    """One half of a pattern; ``plain``: a name word for word, without any of a shell's signs."""

    text: str
    plain: bool


def split_pattern(pattern: str) -> tuple[PatternPart, PatternPart]:
    """Split a pattern into schema and table, for a source that translates them.

    Raises Misconfigured for a text that is not a pattern.
    """
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        raise _not_patterns([pattern])
    return _half(found["schema"]), _half(found["table"])


def matches(table: TableId, include: Iterable[str], exclude: Iterable[str] = ()) -> bool:
    """Return whether ``table`` matches a pattern of ``include`` and none of ``exclude``.

    Raises Misconfigured for a text that is not a pattern.
    """
    included = any(_match(table, pattern) for pattern in include)
    return included and not any(_match(table, pattern) for pattern in exclude)


def named_table(pattern: str) -> TableId | None:
    """Return the one table that ``pattern`` can mean, None for one with a shell's signs.

    Raises Misconfigured for a text that is not a pattern.
    """
    schema, table = split_pattern(pattern)
    return TableId(schema.text, table.text) if schema.plain and table.plain else None


def named_schema(pattern: str) -> str | None:
    """Return the one schema whose tables ``pattern`` can mean, if it names one."""
    schema, _ = split_pattern(pattern)
    return schema.text if schema.plain else None


def matcher(pattern: str) -> Callable[[TableId], bool]:
    """Make a function that says whether a table matches ``pattern``, once for many tables."""
    schema, name = _compile(pattern)
    if schema is None:
        return lambda table: (
            name.fullmatch(table.name) is not None
            and _SYSTEM_SCHEMA.fullmatch(table.schema) is None
        )
    return lambda table: (
        name.fullmatch(table.name) is not None and schema.fullmatch(table.schema) is not None
    )


def check_patterns(patterns: Iterable[str]) -> None:
    """Raise Misconfigured, with every text that is not a pattern."""
    wrong = [pattern for pattern in patterns if _PATTERN.fullmatch(pattern) is None]
    if wrong:
        raise _not_patterns(wrong)


def _match(table: TableId, pattern: str) -> bool:
    return matcher(pattern)(table)


@functools.lru_cache(maxsize=1024)
def _compile(pattern: str) -> tuple[re.Pattern[str] | None, re.Pattern[str]]:
    """Compile both parts as regular expressions; None for the schema ``*``."""
    parts = _PATTERN.fullmatch(pattern)
    if parts is None:
        raise _not_patterns([pattern])
    schema = None if parts["schema"] == "*" else _part(parts["schema"])
    return schema, _part(parts["table"])


def _half(text: str) -> PatternPart:
    if text.startswith('"'):
        return PatternPart(text[1:-1].replace('""', '"'), plain=True)
    return PatternPart(text, plain=not set(text) & set("*?["))


def _part(text: str) -> re.Pattern[str]:
    if text.startswith('"'):
        return re.compile(re.escape(text[1:-1].replace('""', '"')))
    return re.compile(fnmatch.translate(text))


def _not_patterns(texts: list[str]) -> Misconfigured:
    named = [repr(text[:_SHOWN_CHARACTERS]) for text in texts[:_SHOWN_MAX]]
    if len(texts) > _SHOWN_MAX:
        named.append(f"… {len(texts)} of them")
    return Misconfigured(
        f"not a pattern of the form schema.table: {', '.join(named)}",
        hint='write public.orders, public.*, or "My Schema"."My Table"',
    )
