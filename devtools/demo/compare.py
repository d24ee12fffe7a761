"""Compares source and warehouse at the demo's end, row by row and column by column.

It shares no code with capture or merge: the source is queried in plain SQL for every value as text,
the warehouse is read without a JVM and rendered as the source would print it (both in
`devtools.demo.databases`). Equal means: the same keys, and for every column the same text or NULL
on both sides. One table at a time is held in memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from devtools.demo.bigquery_tables import read_bigquery
from devtools.demo.databases.base import SourceTable, Texts
from devtools.demo.databases.choose import of_url, tables
from tideline.contract.layout import table_path
from tideline.contract.schema import parse_table
from tideline.contract.target_url import TableFormatName
from tideline.settings import Warehouse, load_settings
from tideline.warehouse.access import storage_options
from tideline.warehouse.delta.reader import delta_table
from tideline.warehouse.iceberg.client import find_table
from tideline.warehouse.iceberg.names import identifier_of

DIFFERENCES_SHOWN = 10
OVERFLOW = "_tl_overflow"
PENDING = "_tl_pending"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

OURS = ("_tl_seq", "_tl_ts", OVERFLOW, PENDING)


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One difference. ``key`` is the row's, ``column`` empty for whole rows."""

    table: str
    what: str
    key: str = ""
    column: str = ""

    def __str__(self) -> str:
        where = "".join(
            f" {word} {value}"
            for word, value in (("row", self.key), ("column", self.column))
            if value
        )
        return f"{self.table}{where}: {self.what}"


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """One table: the number of rows equal in all columns, and the differences."""

    table: str
    rows_equal: int
    differences: int
    first: tuple[RowDifference, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    tables: tuple[ComparedTable, ...]

    @property
    def differences(self) -> int:
        return sum(table.differences for table in self.tables)

    @property
    def rows_equal(self) -> int:
        return sum(table.rows_equal for table in self.tables)

    @property
    def equal(self) -> bool:
        return self.differences == 0

    def lines(self) -> list[str]:
        """Return the output: the verdict, or each table's first differences and their count."""
        if self.equal:
            return [f"demo: ok, {len(self.tables)} tables, {self.rows_equal} rows equal"]
        found = [table for table in self.tables if table.differences]
        lines = [f"demo: FAILED, {self.differences} differences in {len(found)} tables"]
        for table in found:
            lines += [f"  {difference}" for difference in table.first]
            if table.differences > len(table.first):
                lines.append(f"  {table.table}: {table.differences - len(table.first)} more")
        return lines


class _Differences:
    """Counts every difference of a table and keeps the first few."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.count = 0
        self.first: list[RowDifference] = []

    def add(self, what: str, keys: Texts, column: str = "") -> None:
        """Add a difference for each of ``keys``."""
        self.count += len(keys)
        for key in keys.slice(0, DIFFERENCES_SHOWN - len(self.first)).to_pylist():
            self.first.append(RowDifference(self.table, what, str(key), column))

    def add_whole(self, what: str, column: str = "") -> None:
        """Add a difference of the table itself."""
        self.count += 1
        self.first.append(RowDifference(self.table, what, column=column))

    def result(self, rows_equal: int) -> ComparedTable:
        return ComparedTable(self.table, rows_equal, self.count, tuple(self.first))


def compare(dsn: str, place: Warehouse, names: Sequence[str]) -> Comparison:
    """Compare every table of ``names`` (``schema.name``); the source must be at rest."""
    return Comparison(tuple(compare_table(dsn, place, table) for table in names))


def compare_table(dsn: str, place: Warehouse, table: str) -> ComparedTable:
    source = of_url(dsn).read_table(dsn, table)
    url = table_path(place.root(place.format), parse_table(table))
    rows = _READERS[place.format](place, url)
    if rows is None:
        differences = _Differences(table)
        differences.add_whole("is not in the warehouse")
        return differences.result(0)
    return compare_rows(table, source, rows)


def _read_delta(place: Warehouse, url: str) -> pa.Table | None:
    options = storage_options(place)
    there = DeltaTable.is_deltatable(url, dict(options))
    return read_warehouse(url, options) if there else None


def _read_iceberg(place: Warehouse, url: str) -> pa.Table | None:
    table = find_table(place, identifier_of(url))
    return None if table is None else table.scan().to_arrow()


_READERS: Mapping[TableFormatName, Callable[[Warehouse, str], pa.Table | None]] = {
    "delta": _read_delta,
    "iceberg": _read_iceberg,
    "bigquery": read_bigquery,
}


def read_warehouse(url: str, options: Mapping[str, str]) -> pa.Table:
    """Read all rows of a Delta table as Arrow; deletion vectors are applied."""
    found = delta_table(url, options)
    query = QueryBuilder().register("target", found).execute("SELECT * FROM target")
    return pa.table(query.read_all())


def compare_rows(table: str, source: SourceTable, warehouse: pa.Table) -> ComparedTable:
    """Compare two versions of one table, the source's as text, the warehouse's as it is stored."""
    differences = _Differences(table)
    names = source.rows.column_names
    for name in (name for name in names if name not in warehouse.column_names):
        differences.add_whole("is only in the source", name)
    for name in (name for name in warehouse.column_names if name not in (*names, *OURS)):
        differences.add_whole("is only in the warehouse", name)
    if not source.key:
        differences.add_whole("has no primary key")
    if differences.count:
        return differences.result(0)

    stored = pa.table({name: _stored_text(source, warehouse, name) for name in names})
    source_keys, stored_keys = (_row_keys(rows, source.key) for rows in (source.rows, stored))
    place = pc.index_in(source_keys, value_set=stored_keys)
    found = pc.is_valid(place)
    stranger = pc.is_null(pc.index_in(stored_keys, value_set=source_keys))
    differences.add("is missing in the warehouse", source_keys.filter(pc.invert(found)))
    differences.add("is only in the warehouse", stored_keys.filter(stranger))
    differences.add("is in the warehouse more than once", _repeated(stored_keys))
    differences.add("still waits for a value", stored_keys.filter(pa.array(_waiting(warehouse))))

    keys = source_keys.filter(found)
    left, right = source.rows.filter(found), stored.take(place.drop_null())
    all_equal = np.ones(len(keys), dtype=np.bool_)
    for name in names:
        wrong = _unequal(left[name], right[name])
        all_equal &= ~wrong
        for what, chosen in _kinds(left[name], right[name], wrong):
            differences.add(what, keys.filter(pa.array(chosen)), name)
    return differences.result(int(all_equal.sum()))


def _stored_text(source: SourceTable, warehouse: pa.Table, name: str) -> Texts:
    """Return a column as text, with values that its type cannot hold from the overflow map."""
    text = source.as_text(warehouse[name])
    if OVERFLOW in warehouse.column_names:
        kept = pc.map_lookup(warehouse[OVERFLOW], query_key=name, occurrence="first")
        text = pc.coalesce(text, kept.cast(pa.string()))
    return text


def _row_keys(rows: pa.Table, key: tuple[str, ...]) -> Texts:
    """Return a unique text per key: its values, each after its length."""
    if len(key) == 1:
        return rows[key[0]]
    pieces = []
    for name in key:
        length = pc.utf8_length(rows[name]).cast(pa.string())
        pieces.append(pc.binary_join_element_wise(length, rows[name], ":"))
    joined: Texts = pc.binary_join_element_wise(*pieces, " ")
    return joined


def _repeated(keys: Texts) -> Texts:
    counted = pc.value_counts(keys)
    more = np.asarray(counted.field("counts")) > 1
    return pa.chunked_array([counted.field("values").filter(pa.array(more))])


def _waiting(warehouse: pa.Table) -> Mask:
    if PENDING not in warehouse.column_names:
        return np.zeros(len(warehouse), dtype=np.bool_)
    lengths: Texts = pc.list_value_length(warehouse[PENDING])
    return np.asarray([bool(length) for length in lengths.to_pylist()], dtype=np.bool_)


def _is_null(column: Texts) -> Mask:
    return np.asarray(pc.is_null(column), dtype=np.bool_)


def _unequal(left: Texts, right: Texts) -> Mask:
    """Return true where the texts differ or exactly one of them is NULL."""
    differs = np.asarray(pc.fill_null(pc.not_equal(left, right), False), dtype=np.bool_)
    unequal: Mask = differs | (_is_null(left) ^ _is_null(right))
    return unequal


def _kinds(left: Texts, right: Texts, wrong: Mask) -> Iterator[tuple[str, Mask]]:
    if wrong.any():
        left_null, right_null = _is_null(left), _is_null(right)
        yield "has another value", wrong & ~left_null & ~right_null
        yield "is NULL only in the warehouse", wrong & right_null
        yield "is NULL only in the source", wrong & left_null


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m devtools.demo.compare CONFIG [TABLE…]``: 0 when equal, 1 with the difference.

    The source must be at rest, and everything merged.
    """
    parser = argparse.ArgumentParser(description="compare source and warehouse of a demo")
    parser.add_argument("config")
    parser.add_argument("tables", nargs="*")
    options = parser.parse_args(arguments)
    settings = load_settings(options.config)
    url = settings.source.dsn()
    chosen = options.tables or tables(of_url(url))
    result = compare(url, settings.warehouse_storage, chosen)
    print("\n".join(result.lines()))
    return 0 if result.equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
