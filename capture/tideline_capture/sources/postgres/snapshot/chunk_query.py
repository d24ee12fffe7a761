"""The COPY statements of one chunk.

All comparisons of keys are made by the database, in the order of its ``ORDER BY``: in the column's
collation, and with the operators of the type's default order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tideline.contract.errors import InvariantBroken
from tideline_capture.core.chunks import ChunkOrder
from tideline_capture.sources.postgres.catalog.tables import PostgresCatalogTable
from tideline_capture.sources.postgres.names import qualified, quoted

_LESS, _AT_MOST, _AT_LEAST, _GREATER = 1, 2, 4, 5
"""B-tree strategy numbers."""
_PLAIN = {_LESS: "<", _AT_MOST: "<=", _AT_LEAST: ">=", _GREATER: ">"}
_STRICT = {_LESS: _LESS, _AT_LEAST: _GREATER, _GREATER: _GREATER}
"""The way earlier columns decide a comparison of keys by themselves; equal ones leave it open."""
_OPEN = {_LESS: _AT_MOST, _AT_LEAST: _AT_LEAST, _GREATER: _AT_LEAST}

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
JOIN pg_catalog.pg_amop p ON p.amopfamily = c.opcfamily AND p.amopstrategy IN (1, 2, 4, 5)
  AND p.amoplefttype = c.opcintype AND p.amoprighttype = c.opcintype
JOIN pg_catalog.pg_operator o ON o.oid = p.amopopr
JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace
WHERE a.attrelid = %s AND a.attname = ANY (%s) AND s.nspname <> 'pg_catalog'
"""
"""The basis of ``ORDER BY``, for key columns whose type has operators outside of pg_catalog."""


class PostgresChunkQuery:
    """The COPY statements of one chunk. Identifiers are the catalog's, quoted; values literals."""

    def __init__(self, cursor: Any, order: ChunkOrder, table: PostgresCatalogTable) -> None:
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
        """Return the query for the chunk's rows, in key order; or of its last one only the key."""
        key = ", ".join(f"t.{quoted(name)}" for name in self._schema.key)
        columns = ", ".join(f"t.{quoted(name)}" for name in self._schema.column_names)
        if self._order.keys is not None:
            wanted = f"({key}) IN ({self._asked()})"
            select = f"SELECT {columns} FROM {self._from} t WHERE {wanted}"  # noqa: S608
            return f"COPY ({select}) TO STDOUT (FORMAT csv)"
        conditions = self._conditions()
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        if self._order.boundary_only:
            columns = key
        select = f"SELECT {columns} FROM {self._from} t{where} ORDER BY {key}"  # noqa: S608
        if self._order.boundary_only:
            last = f"OFFSET {self._order.rows_max - 1:d} LIMIT 1"
            return f"COPY ({select} {last}) TO STDOUT (FORMAT csv)"
        return f"COPY ({select} LIMIT {self._order.rows_max:d}) TO STDOUT (FORMAT csv)"

    def missing(self) -> str:
        """Return the query for the requested keys that the table does not hold."""
        names = ", ".join(quoted(name) for name in self._schema.key)
        select = f"SELECT DISTINCT {names} FROM ({self._asked()}) AS asked ({names})"  # noqa: S608
        same = " AND ".join(f"t.{quoted(n)} = asked.{quoted(n)}" for n in self._schema.key)
        absent = f"NOT EXISTS (SELECT FROM {self._from} t WHERE {same})"
        return f"COPY ({select} WHERE {absent}) TO STDOUT (FORMAT csv)"

    def _conditions(self) -> list[str]:
        order, conditions = self._order, []
        if order.after_key is not None:
            conditions.append(self._compared(_GREATER, order.after_key))
        elif order.key_range is not None and order.key_range.start is not None:
            conditions.append(self._compared(_AT_LEAST, order.key_range.start))
        if order.key_range is not None and order.key_range.end is not None:
            conditions.append(self._compared(_LESS, order.key_range.end))
        if order.time is not None:
            column = f"t.{quoted(order.time.column)}"
            start = self._literal(order.time.column, order.time.start)
            end = self._literal(order.time.column, order.time.end)
            conditions.append(f"{column} >= {start} AND {column} < {end}")
        return conditions

    def _compared(self, strategy: int, bound: Sequence[str]) -> str:
        """Return the condition for keys on that side of ``bound``, texts of the first key columns,
        in the order of ``ORDER BY``.

        A row constructor becomes one index condition; it takes one operator for all columns.
        """
        names = self._schema.key[: len(bound)]
        values = [self._literal(name, value) for name, value in zip(names, bound, strict=True)]
        operators = self._operators()
        of_all = {operators.get((name, strategy), _PLAIN[strategy]) for name in names}
        if len(of_all) == 1:
            key = ", ".join(f"t.{quoted(name)}" for name in names)
            return f"ROW({key}) {of_all.pop()} ROW({', '.join(values)})"
        condition = ""
        for name, value in reversed(list(zip(names, values, strict=True))):
            if not condition:
                operator = operators.get((name, strategy), _PLAIN[strategy])
                condition = f"t.{quoted(name)} {operator} {value}"
                continue
            strict, undecided = _STRICT[strategy], _OPEN[strategy]
            beyond = operators.get((name, strict), _PLAIN[strict])
            reached = operators.get((name, undecided), _PLAIN[undecided])
            column = f"t.{quoted(name)}"
            condition = (
                f"({column} {reached} {value} AND ({column} {beyond} {value} OR {condition}))"
            )
        return condition

    def _operators(self) -> dict[tuple[str, int], str]:
        """Return the comparisons of key columns whose type has a separate order, by strategy.

        A plain ``>`` is looked up by name. With the pinned ``search_path`` that does not find the
        one of an extension's type (citext), but another type's, whose order skips rows.
        """
        self._cursor.execute(_COMPARISONS, (self._oid, list(self._schema.key)))
        return {
            (name, strategy): f"OPERATOR({quoted(space)}.{operator})"
            for name, strategy, space, operator in self._cursor.fetchall()
        }

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
