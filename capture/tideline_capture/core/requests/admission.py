"""Decides whether a request can be served, and by which tables.

A range of keys that cannot contain a key has its ends swapped: nothing would be read, and a
comparison with nothing finds no difference. Only numbers and dates have an order that is known
here; the order of texts is their collation's, which the database has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from tideline.contract.open_state import TableCondition
from tideline.contract.printable import command
from tideline.contract.reasons import SnapshotReason
from tideline.contract.receipt import rereads_pending
from tideline.contract.request import DumpRequest, KeyRange
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind, LogicalType
from tideline_capture.core.requests.table_selection import TableSelection
from tideline_capture.core.state import VALUE, CoreState

_NUMBERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.DECIMAL)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
SHOWN_BY_STATUS = "`tideline status` shows the tables that are captured"


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """The error of a request that is refused, and what to do instead."""

    error: str
    hint: str = SHOWN_BY_STATUS


class Admission:
    """Judges requests by the state that they meet."""

    def __init__(self, state: CoreState) -> None:
        self._state = state

    def tables_for(
        self, request: DumpRequest, selection: TableSelection
    ) -> tuple[list[str], RequestRefusal | None]:
        """Return the tables to dump, or why the request is refused."""
        why = request.why
        if why is not None and (why.by_worker or not rereads_pending(request)):
            begins = f"{why.value}:"
            return [], RequestRefusal(
                f"ids that begin with {begins!r} are for requests of Tideline's own"
            )
        if selection.error is not None:
            return [], RequestRefusal(selection.error)
        if selection.missing is not None:
            return [], RequestRefusal(f"no captured table matches {selection.missing!r}")
        every = dict.fromkeys(table for hits in selection.hits for table in hits)
        served = {table: self._serves(request, table) for table in every}
        for hits in selection.hits:
            if not any(map(served.__getitem__, hits)):
                return [], self._unread(hits[0])
        tables = [table for table in every if served[table]]
        without = [] if request.whole else [one for one in tables if self._state.keyless(one)]
        if without:
            return [], RequestRefusal(
                f"table {without[0]} has no key: only a dump of the whole table can be made",
                f"{command('dump', without[0])}, without keys or a range",
            )
        error = self._wrong_number(request, len(tables)) or self._wrong_keys(request, tables[0])
        if error is None and why is SnapshotReason.PENDING:
            error = self._comes_anyway(tables[0])
        return tables, None if error is None else RequestRefusal(error)

    def _unread(self, table: str) -> RequestRefusal:
        """Return why nothing is read of a table."""
        state = self._state.tables[table]
        if not self._state.captures(table):
            return RequestRefusal(f"table {table} is quarantined: {state.reason}")
        if state.condition is TableCondition.SCHEMA_BLOCKED:
            return RequestRefusal(f"table {table} is blocked: {state.reason}")
        return RequestRefusal(
            f"table {table} has no key to verify it by",
            f"{command('dump', table)} makes it equal to its source (docs/KEYLESS.md)",
        )

    def _wrong_number(self, request: DumpRequest, tables: int) -> str | None:
        """Return why keys or a range of them cannot be those of so many tables, if so."""
        for name, given in (("keys", request.keys), ("key_range", request.key_range)):
            if given is not None and tables != 1:
                return f"{name} needs exactly one table, {tables} match"
        return None

    def _wrong_keys(self, request: DumpRequest, table: str) -> str | None:
        """Return why the request's keys cannot be keys of ``table``, if so."""
        schema = self._state.schema(table)
        wanted = ", ".join(schema.key) if schema else "unknown"
        count = len(schema.key) if schema else 0
        if request.keys is not None and len(request.keys[0]) != count:
            return f"each key of {table} must give its key columns: {wanted}"
        if request.key_range is not None:
            ends = (request.key_range.start or (), request.key_range.end or ())
            if max(map(len, ends)) > count:
                return f"key_range has more texts than {table} has key columns: {wanted}"
            if schema is not None and holds_nothing(request.key_range, schema):
                return "key_range holds no key: from is not before to"
        return None

    def _serves(self, request: DumpRequest, table: str) -> bool:
        """Return whether the request can dump ``table``.

        A quarantined table is not dumped: nothing of it is captured in the meantime. One that was
        quarantined for a value is taken up again by a dump of the whole table.
        """
        state = self._state
        if request.verifies:
            blocked = state.tables[table].condition is TableCondition.SCHEMA_BLOCKED
            schema = state.schema(table)
            keyed = schema is not None and bool(schema.key)
            return state.captures(table) and not blocked and keyed
        return state.captures(table) or (request.whole and state.quarantined(table) == VALUE)

    def _comes_anyway(self, table: str) -> str | None:
        """Return why rows that a merge left pending need not be read again now.

        If it turns out that they must, they are requested again.
        """
        for item in self._state.requests.open:
            if any(dump.table == table for dump in item.dumps):
                if item.request.whole:
                    return f"a dump of all of {table} is under way"
                if item.request.why is SnapshotReason.PENDING:
                    return f"rows of {table} are being read again"
        return None


def holds_nothing(wanted: KeyRange, schema: TableSchema) -> bool:
    """Return whether it is certain that no key of the table lies in the range."""
    if wanted.start is None or wanted.end is None:
        return False
    for name, first, last in zip(schema.key, wanted.start, wanted.end, strict=False):
        if first == last:
            continue
        logical = schema.column(name).logical
        begin, end = _value(first, logical), _value(last, logical)
        if begin is None or end is None or begin < end:
            return False
        if begin > end:
            return True
    # As far as both go they are the same: the longer one lies behind the shorter one.
    return len(wanted.start) >= len(wanted.end)


def _value(text: str, logical: LogicalType) -> Decimal | None:
    """Return a bound's value, as far as that is known here; dates as their numbers of days."""
    if logical.kind in _NUMBERS and _NUMBER.fullmatch(text):
        return Decimal(text)
    if logical.kind is Kind.DATE and _DATE.fullmatch(text):
        try:
            return Decimal(date.fromisoformat(text).toordinal())
        except ValueError:
            return None
    return None
