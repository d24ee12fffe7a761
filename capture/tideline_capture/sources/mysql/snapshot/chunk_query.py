"""The SELECT of one chunk.

All comparisons of keys are made by the database, in the order of its ``ORDER BY``: that of the
column's collation, and of the numbers of ENUM and SET. A row constructor is no index condition
here, ``a > x OR (a = x AND b > y)`` is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tideline.contract.errors import CorruptData
from tideline_capture.core.chunks import ChunkOrder
from tideline_capture.sources.mysql.names import qualified, quoted
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn, MysqlTable
from tideline_capture.sources.mysql.types.literals import (
    NotAValue,
    by_number,
    key_literal,
    key_text,
    literal,
    ordered_literal,
    typed,
)

_UNICODE = "utf8mb4"
_EXACT_NUMBERS = 53
"""A SET with more labels has numbers that no double can hold, and plain comparisons are made as
doubles."""


class MysqlChunkQuery:
    """The statement of ``order``, and the layout of its rows: `width` values, the table's columns
    and then the numbers of key columns that are ordered by number."""

    def __init__(self, order: ChunkOrder, table: MysqlTable, index: str = "PRIMARY") -> None:
        self._index = index if index == "PRIMARY" else quoted(index)
        self._order = order
        self._table = table
        self._columns = {column.name: column for column in table.columns}
        self._key = [self._columns[name] for name in table.key]
        self._numbered = [column for column in self._key if by_number(column)]
        self._read = self._key if order.boundary_only else list(table.columns)

    @property
    def width(self) -> int:
        return len(self._read) + len(self._numbered)

    def doubtful(self) -> list[tuple[str, str]]:
        """Return requested texts, by column, that the column's charset may have no bytes for: the
        servers refuse the statement when they compare a column with such a text."""
        return [
            (column.name, key[place])
            for place, column in enumerate(self._key)
            if column.charset not in ("", BYTES, _UNICODE)
            for key in self._order.keys or ()
            if not key[place].isascii()
        ]

    def storable(self, texts: Sequence[tuple[str, str]]) -> str:
        """Return a query of one row, with 1 where the column's charset has bytes for the text."""
        tests = []
        for name, text in texts:
            sent, charset = f"X'{text.encode().hex()}'", self._columns[name].charset
            stored = f"CONVERT(_{_UNICODE} {sent} USING {charset})"
            tests.append(f"CAST(CONVERT({stored} USING {_UNICODE}) AS BINARY) = {sent}")
        return f"SELECT {', '.join(tests)}"

    def rows(self, impossible: frozenset[tuple[str, str]] = frozenset()) -> str:
        """Return the query for the chunk's rows, in key order. Raises NotAValue for an invalid key
        or bound.

        ``impossible`` are those of `doubtful` that are not storable: no row has them.
        """
        selected = [_selected(column) for column in self._read]
        selected += [_number(column) for column in self._numbered]
        statement = f"SELECT {', '.join(selected)} FROM {qualified(self._table.table)} t"  # noqa: S608
        order = self._order
        if order.time is None:
            # Its index needs no sort, which compares the first 1,024 bytes of texts only.
            statement += f" FORCE INDEX ({self._index})"
        if order.keys is not None:
            return f"{statement} WHERE {self._asked(order.keys, impossible)}"
        conditions = self._conditions()
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        key = ", ".join(_name(column) for column in self._key)
        last = f"LIMIT 1 OFFSET {order.rows_max - 1:d}"
        limit = last if order.boundary_only else f"LIMIT {order.rows_max:d}"
        return f"{statement}{where} ORDER BY {key} {limit}"

    def after(self) -> str | None:
        """Return the condition that a key is behind the order's; raises NotAValue when that is
        invalid."""
        last = self._order.after_key
        if last is None:
            return None
        if len(last) != len(self._key):
            raise NotAValue
        condition = ""
        for column, value in reversed(list(zip(self._key, last, strict=True))):
            name, number = _ordered(column), key_literal(value, column)
            further = f" OR ({name} = {number} AND {condition})" if condition else ""
            condition = f"({name} > {number}{further})"
        return condition

    def key_of(self, row: Sequence[bytes | None]) -> tuple[str, ...]:
        """Return the key of one row's values, in the form that ``after_key`` has."""
        names = [column.name for column in self._read]
        numbers = iter(row[len(names) :])
        return tuple(
            _key_text(next(numbers) if by_number(one) else row[names.index(one.name)], one)
            for one in self._key
        )

    def asked(self) -> pa.RecordBatch:
        """Return the requested keys as rows hold them; raises NotAValue when one cannot be
        typed."""
        keys = self._order.keys or ()
        if any(len(key) != len(self._key) for key in keys):
            raise NotAValue
        arrays = [
            typed([key[place] for key in keys], column) for place, column in enumerate(self._key)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._table.key))

    def _conditions(self) -> list[str]:
        after, key_range = self.after(), self._order.key_range
        conditions = [] if after is None else [after]
        if key_range is not None and key_range.start is not None and after is None:
            conditions.append(self._bound(key_range.start, ">", ">="))
        if key_range is not None and key_range.end is not None:
            conditions.append(self._bound(key_range.end, "<", "<"))
        time = self._order.time
        if time is not None:
            column = self._columns[time.column]
            start, end = literal(time.start, column), literal(time.end, column)
            conditions.append(f"{_name(column)} >= {start} AND {_name(column)} < {end}")
        return conditions

    def _bound(self, bound: Sequence[str], beyond: str, last: str) -> str:
        """Return the condition for keys ``beyond`` a bound of the first key columns, the last of
        which is compared by ``last``."""
        if len(bound) > len(self._key):
            raise NotAValue
        condition = ""
        for column, value in reversed(list(zip(self._key, bound, strict=False))):
            name, number = _ordered(column), ordered_literal(value, column)
            if condition:
                condition = f"({name} {beyond} {number} OR ({name} = {number} AND {condition}))"
            else:
                condition = f"{name} {last} {number}"
        return condition

    def _asked(self, keys: Sequence[Sequence[str]], impossible: frozenset[tuple[str, str]]) -> str:
        names = self._table.key
        keys = [key for key in keys if impossible.isdisjoint(zip(names, key, strict=True))]
        if not keys:
            return "FALSE"
        if len(self._key) == 1:
            (column,) = self._key
            return f"{_name(column)} IN ({', '.join(literal(key[0], column) for key in keys)})"
        return " OR ".join(f"({self._equals(key)})" for key in keys)

    def _equals(self, key: Sequence[str]) -> str:
        pairs = zip(self._key, key, strict=True)
        return " AND ".join(f"{_name(one)} = {literal(value, one)}" for one, value in pairs)


def whole_table(table: MysqlTable) -> str:
    """Return the query for all rows, in whatever order: of a table without a key."""
    selected = ", ".join(_selected(column) for column in table.columns)
    return f"SELECT {selected} FROM {qualified(table.table)} t"  # noqa: S608


def _name(column: MysqlColumn) -> str:
    return f"t.{quoted(column.name)}"


def _number(column: MysqlColumn) -> str:
    return f"CAST({_name(column)} AS UNSIGNED)"


def _ordered(column: MysqlColumn) -> str:
    """Return the column's expression for comparisons with a number."""
    exact = column.code != Code.SET or len(column.labels) <= _EXACT_NUMBERS
    return _name(column) if exact else _number(column)


def _selected(column: MysqlColumn) -> str:
    """Return the column in a form whose text is exact.

    A FLOAT is printed with six digits, a DOUBLE(10,2) with two behind the point; a product with 1
    as the shortest text that is that double (and keeps the sign of a zero, which a sum does not).
    """
    name = _name(column)
    return f"{name} * 1E0" if column.code in (Code.FLOAT, Code.DOUBLE) else name


def _key_text(value: bytes | None, column: MysqlColumn) -> str:
    if value is None:
        raise CorruptData(f"key column {column.name!r} is NULL")
    return key_text(value, column)
