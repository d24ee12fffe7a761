"""Finds the tables that a request's patterns mean, with a bounded amount of work.

A name is looked up; only a pattern with a shell's signs is compared with tables, with those of its
schema if that is a name. Comparisons are counted: the calling thread also reads the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tideline.contract.errors import Misconfigured
from tideline.contract.patterns import check_patterns, matcher, named_schema, named_table
from tideline.contract.schema import TableId, parse_table

COMPARISONS_MAX = 50_000
"""Limit for one request; its first pattern with a shell's signs may be compared with every
table."""
_PATTERN_WORK, _CHARACTER_WORK = 200, 10
"""The cost of preparing such a pattern, in comparisons: measured."""


@dataclass(frozen=True, slots=True)
class TableSelection:
    """The tables that patterns mean.

    ``hits`` are the tables of each pattern, in the order of patterns; ``missing`` is the first
    pattern that means none. ``work`` counts what was looked up or compared. ``error``: there was
    too much to compare, or a text is no pattern.
    """

    hits: tuple[tuple[str, ...], ...] = ()
    missing: str | None = None
    work: int = 0
    error: str | None = None


class TableNames:
    """The tables that are known, by name and by schema."""

    def __init__(self) -> None:
        self._ids: dict[str, TableId] = {}
        self._texts: dict[TableId, str] = {}
        self._schemas: dict[str, dict[str, TableId]] = {}

    def update(self, tables: Iterable[str]) -> None:
        """Replace the known tables by ``tables``."""
        now = dict.fromkeys(tables)
        if now.keys() == self._ids.keys():
            return
        self._ids = {text: self._ids.get(text) or parse_table(text) for text in now}
        self._texts = {table: text for text, table in self._ids.items()}
        self._schemas = {}
        for text, table in self._ids.items():
            self._schemas.setdefault(table.schema, {})[text] = table

    def choose(self, patterns: Iterable[str]) -> TableSelection:
        """Return the tables that ``patterns`` mean; stop at the first that means none."""
        distinct = tuple(dict.fromkeys(patterns))
        try:
            check_patterns(distinct)
        except Misconfigured as error:
            return TableSelection(work=len(distinct), error=error.message)
        hits: list[tuple[str, ...]] = []
        names = compared = 0
        for pattern in distinct:
            name = named_table(pattern)
            if name is not None:
                names += 1
                found = tuple(self._texts[one] for one in (name,) if one in self._texts)
            else:
                among, first = self._among(pattern), not compared
                compared += _PATTERN_WORK + _CHARACTER_WORK * len(pattern) + len(among)
                if compared > COMPARISONS_MAX and not first:
                    return TableSelection(work=names + compared, error=_TOO_MUCH)
                found = _matching(pattern, among)
            if not found:
                return TableSelection(missing=pattern, work=names + compared)
            hits.append(found)
        return TableSelection(tuple(hits), work=names + compared)

    def _among(self, pattern: str) -> dict[str, TableId]:
        schema = named_schema(pattern)
        return self._ids if schema is None else self._schemas.get(schema, {})


def _matching(pattern: str, among: Mapping[str, TableId]) -> tuple[str, ...]:
    if not among:
        return ()
    fits = matcher(pattern)
    return tuple(text for text, table in among.items() if fits(table))


_TOO_MUCH = (
    f"its patterns take more than {COMPARISONS_MAX} comparisons with the tables that are captured:"
    " name the tables, or ask for them in several requests"
)
