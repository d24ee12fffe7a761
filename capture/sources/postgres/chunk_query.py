"""The COPY statements of one chunk.

All comparisons of keys are made by the database, in the order of its own ``ORDER BY``: in the
column's collation, and with the operators of the type's default order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from capture.core.events import ChunkOrder
from capture.sources.postgres.catalog import CatalogTable
from capture.sources.postgres.names import qualified, quoted
from tideline.contract.errors import InvariantBroken

_AT_LEAST, _GREATER = 4, 5
"""B-tree strategy numbers."""

_COMPARISONS = """
SELECT a.attname, p.amopstrategy, s.nspname, o.oprname FROM pg_catalog.pg_attribute a
JOIN LATERAL (
  WITH RECURSIVE base(oid, kind, made_of) AS (
    SELECT t.oid, t.typtype, t.typbasetype FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid
    UNION ALL SELECT t.oid, t.typtype, t.typbasetype FROM base b
    JOIN pg_catalog.pg_type t ON b.kind = 'd' AND t.oid = b.made_of)
  SELECT b.oid FROM base b WHERE b.kind <> 'd') base ON true
JOIN pg_catalog.pg_opclass c ON c.opcintype = base.oid AND c.opcdefault
JOIN pg_catalog.pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
JOIN pg_catalog.pg_amop p ON p.amopfamily = c.opcfamily AND p.amopstrategy IN (4, 5)
  AND p.amoplefttype = c.opcintype AND p.amoprighttype = c.opcintype
JOIN pg_catalog.pg_operator o ON o.oid = p.amopopr
JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace
WHERE a.attrelid = %s AND a.attname = ANY (%s) AND s.nspname <> 'pg_catalog'
"""
"""What ``ORDER BY`` goes by, for key columns whose type has operators outside of pg_catalog."""


@dataclass(frozen=True, slots=True)
class _Operators:
    greater: str
    at_least: str


class ChunkQuery:
    """The COPY statements of one chunk. Identifiers are the catalog's, quoted; values literals."""

    def __init__(self, cursor: Any, order: ChunkOrder, table: CatalogTable) -> None:
        schema = table.facts.schema
        if schema is None:
            raise InvariantBroken(f"a chunk of {order.table}, which has no schema")
        self._cursor = cursor
        self._order = order
        self._oid = table.facts.oid
        self._schema = schema
        self._casts = dict(zip(schema.column_names, table.casts, strict=True))
        self._from = ("" if table.partitioned else "ONLY ") + qualified(table.table)

    def rows(self) -> str:
        """The chunk's rows, in key order."""
        key = ", ".join(f"t.{quoted(name)}" for name in self._schema.key)
        columns = ", ".join(f"t.{quoted(name)}" for name in self._schema.column_names)
        if self._order.keys is not None:
            wanted = f"({key}) IN ({self._asked()})"
            select = f"SELECT {columns} FROM {self._from} t WHERE {wanted}"  # noqa: S608
            return f"COPY ({select}) TO STDOUT (FORMAT csv)"
        conditions = self._conditions(key)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        select = f"SELECT {columns} FROM {self._from} t{where} ORDER BY {key}"  # noqa: S608
        return f"COPY ({select} LIMIT {self._order.rows_max:d}) TO STDOUT (FORMAT csv)"

    def missing(self) -> str:
        """The asked-for keys that the table does not hold."""
        names = ", ".join(quoted(name) for name in self._schema.key)
        select = f"SELECT DISTINCT {names} FROM ({self._asked()}) AS asked ({names})"  # noqa: S608
        same = " AND ".join(f"t.{quoted(n)} = asked.{quoted(n)}" for n in self._schema.key)
        absent = f"NOT EXISTS (SELECT FROM {self._from} t WHERE {same})"
        return f"COPY ({select} WHERE {absent}) TO STDOUT (FORMAT csv)"

    def _conditions(self, key: str) -> list[str]:
        order, conditions = self._order, []
        if order.after_key is not None:
            conditions.append(self._after(key, order.after_key))
        if order.time is not None:
            column = f"t.{quoted(order.time.column)}"
            start = self._literal(order.time.column, order.time.start)
            end = self._literal(order.time.column, order.time.end)
            conditions.append(f"{column} >= {start} AND {column} < {end}")
        return conditions

    def _after(self, key: str, last: Sequence[str]) -> str:
        """Keys behind ``last``, in the order of ``ORDER BY``.

        A row constructor becomes one index condition; it takes one operator for all columns.
        """
        names = self._schema.key
        values = [self._literal(name, value) for name, value in zip(names, last, strict=True)]
        operators = self._operators()
        if len(set(operators)) == 1:
            return f"ROW({key}) {operators[0].greater} ROW({', '.join(values)})"
        condition = ""
        for name, value, ours in reversed(list(zip(names, values, operators, strict=True))):
            greater = f"t.{quoted(name)} {ours.greater} {value}"
            at_least = f"t.{quoted(name)} {ours.at_least} {value}"
            condition = f"({at_least} AND ({greater} OR {condition}))" if condition else greater
        return condition

    def _operators(self) -> list[_Operators]:
        """Per key column the comparisons of its type's own order.

        A plain ``>`` is looked up by name. With the pinned ``search_path`` that does not find the
        one of an extension's type (citext), but another type's, whose order skips rows.
        """
        self._cursor.execute(_COMPARISONS, (self._oid, list(self._schema.key)))
        found = {
            (name, strategy): f"OPERATOR({quoted(space)}.{operator})"
            for name, strategy, space, operator in self._cursor.fetchall()
        }
        return [
            _Operators(found.get((name, _GREATER), ">"), found.get((name, _AT_LEAST), ">="))
            for name in self._schema.key
        ]

    def _asked(self) -> str:
        lines = [
            "("
            + ", ".join(self._literal(n, v) for n, v in zip(self._schema.key, key, strict=True))
            + ")"
            for key in self._order.keys or ()
        ]
        return "VALUES " + ", ".join(lines)

    def _literal(self, column: str, value: str) -> str:
        text = self._cursor.mogrify("%s", (value,)).decode()
        return f"{text}::{self._casts[column]}"
