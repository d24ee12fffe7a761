"""The description of captured tables in ``information_schema``.

The log names the tables, columns and types of its content, and holds every DDL; the catalog adds
the rest: the list of tables, MariaDB's native types, collations, cascades. A few queries serve both
a round over all tables and the look inside a chunk's own transaction. On MySQL the catalog is read
as of the transaction's snapshot, on MariaDB as of now: any difference from the snapshot is then a
DDL that the log has after the low watermark.

Invariant: `MysqlTable.schema` of a table is the one that its TABLE_MAP leads to.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tideline.contract.description import describe
from tideline.contract.patterns import matches
from tideline.contract.schema import TableId
from tideline_capture.core.facts import TableFacts
from tideline_capture.sources.key_configuration import (
    KeyConfiguration,
    KeyConfigurations,
    default_key,
)
from tideline_capture.sources.mysql.catalog.cascades import read_cascades
from tideline_capture.sources.mysql.catalog.column_types import ColumnRow, read_column
from tideline_capture.sources.mysql.catalog.problems import (
    ASTERISK,
    Key,
    Policy,
    Suspect,
    problem_of,
)
from tideline_capture.sources.mysql.types.columns import MysqlColumn, MysqlTable

Flavour = Literal["mysql", "mariadb"]

SYSTEM_SCHEMAS = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
MEMBERSHIP = "binlog"
"""All tables are in the log."""

_GHOST = re.compile(r"_.+_(gho|ghc|del|new|old)")
"""Tables that gh-ost and pt-online-schema-change make and swap in or drop."""

_FRESH = "SET SESSION information_schema_stats_expiry = 0"
"""Without it, MySQL would give numbers of rows that are up to a day old, and write them to a
table."""
_SHOW_HIDDEN_KEYS = "SET SESSION show_gipk_in_create_table_and_information_schema = ON"
"""MySQL 8.0.30 and newer: generated invisible primary keys are always in the log."""

_LIST = """
SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
"""

_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS, TABLE_COMMENT
FROM information_schema.TABLES
WHERE (TABLE_SCHEMA, TABLE_NAME) IN %s AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
"""

_COLUMNS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_OCTET_LENGTH,
       NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME,
       IS_NULLABLE, COLUMN_COMMENT
FROM information_schema.COLUMNS WHERE (TABLE_SCHEMA, TABLE_NAME) IN %s
ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION
"""

_KEYS = """
SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE
FROM information_schema.STATISTICS WHERE (TABLE_SCHEMA, TABLE_NAME) IN %s AND NON_UNIQUE = 0
ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
"""

_NATIVES = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS
WHERE (TABLE_SCHEMA, TABLE_NAME) IN %s AND DATA_TYPE IN ('uuid', 'inet4', 'inet6')
"""

_GENERATED = """
SELECT 1 FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
  AND COALESCE(GENERATION_EXPRESSION, '') <> '' LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class MysqlCatalogTable:
    """A table's facts with what only this source needs.

    ``table`` lacks the columns of unknown types; ``facts.problem`` then names them. The labels of
    an ENUM or SET are as ``information_schema`` gives them, with ``?`` for characters outside the
    basic plane. ``cascades_from`` names the tables whose changes the server carries over to this
    one without logging it. ``key_index`` is the index that the key's order is that of.
    """

    facts: TableFacts
    table: MysqlTable
    rows_estimate: int
    engine: str = ""
    cascades_from: tuple[TableId, ...] = ()
    key_index: str = "PRIMARY"


def list_tables(
    cursor: Any,
    include: Sequence[str],
    exclude: Sequence[str],
    *,
    ours: Collection[TableId] = (),
) -> list[TableId]:
    """Return the tables that the patterns name and the user may see, in order; no views, no
    sequences.

    Left out are the servers' own schemas, ``ours`` (tables that Tideline writes), and the ghost
    tables of online schema changes unless a pattern names one word for word.
    """
    cursor.execute(_LIST)
    tables = [TableId(*row) for row in cursor.fetchall()]
    return sorted(
        table for table in tables if table not in ours and is_chosen(table, include, exclude)
    )


def is_chosen(table: TableId, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Return whether the patterns mean the table, without the server's own schemas and ghost tables
    (as `list_tables`). Works for a table that the log names, too."""
    own = table.schema.lower() in SYSTEM_SCHEMAS
    return not own and matches(table, include, exclude) and _is_meant(table, include)


def read_tables(
    cursor: Any,
    tables: Sequence[TableId],
    *,
    flavour: Flavour,
    cascades: Policy = "refuse",
    key_configurations: KeyConfigurations = default_key,
) -> list[MysqlCatalogTable]:
    """Return the facts of ``tables``, in the order of their names; missing tables are left out.

    ``cascades`` is whether tables that others' changes cascade to unlogged are a problem,
    ``key_configurations`` gives the tables whose rows are identified by other columns than the
    primary key, or by none.
    """
    if not tables:
        return []
    if flavour == "mysql":
        _settle_session(cursor)
    wanted = set(tables)
    rows = _rows_of(cursor, _TABLES, wanted)
    columns = _rows_of(cursor, _COLUMNS, wanted)
    keys = _rows_of(cursor, _KEYS, wanted)
    asterisks = {table for table, rows in columns.items() if any(r[0] == ASTERISK for r in rows)}
    if asterisks and not _reads_asterisk_as_all(cursor):
        asterisks.clear()
    parents = read_cascades(cursor, tables, flavour=flavour)
    found = []
    for table, ((kind, engine, estimate, comment),) in rows.items():
        parts = _Parts(
            kind,
            engine or "",
            tuple(columns.get(table, ())),
            tuple(keys.get(table, ())),
            comment or "",
            table in asterisks,
        )
        above = parents.get(table, ())
        facts, described, index = _table(table, parts, above, cascades, key_configurations(table))
        found.append(MysqlCatalogTable(facts, described, estimate or 0, parts.engine, above, index))
    return sorted(found, key=lambda one: one.table.table)


def is_refused(
    cursor: Any,
    table: TableId,
    *,
    flavour: Flavour,
    cascades: Policy,
    key_configurations: KeyConfigurations = default_key,
) -> bool:
    """Return whether the catalog has the table, and a reason not to capture it yet: unlogged
    changes that are carried over to it are only known after a look.

    A look is several statements, which show no single moment: a table that is dropped between them
    has no columns and no key. So a reason counts once two looks in a row give it; no mark in the
    log says here, as those around a catalog round do, that the table moved meanwhile.
    """

    def look() -> list[tuple[TableFacts, tuple[TableId, ...]]]:
        found = read_tables(
            cursor,
            [table],
            flavour=flavour,
            cascades=cascades,
            key_configurations=key_configurations,
        )
        return [(one.facts, one.cascades_from) for one in found]

    before = look()
    while any(facts.problem is not None or parents for facts, parents in before):
        again = look()
        if again == before:
            return True
        before = again
    return False


def natives(cursor: Any, tables: Sequence[TableId]) -> dict[TableId, dict[str, str]]:
    """Return, by table and column, MariaDB's types that the log does not distinguish from
    BINARY."""
    if not tables:
        return {}
    return {table: dict(rows) for table, rows in _rows_of(cursor, _NATIVES, set(tables)).items()}


def has_generated_columns(cursor: Any, table: TableId) -> bool:
    """Return whether columns of the table are generated from others."""
    cursor.execute(_GENERATED, (table.schema, table.name))
    return cursor.fetchone() is not None


def _is_meant(table: TableId, include: Sequence[str]) -> bool:
    """Return whether it is no ghost table, or a pattern names it word for word."""
    if not _GHOST.fullmatch(table.name):
        return True
    quoted = table.name.replace('"', '""')
    return any(one.endswith((f".{table.name}", f'."{quoted}"')) for one in include)


def _settle_session(cursor: Any) -> None:
    cursor.execute(_FRESH)
    version = cursor.connection.get_server_info().partition("-")[0]
    if tuple(int(part) for part in version.split(".")[:3]) >= (8, 0, 30):
        cursor.execute(_SHOW_HIDDEN_KEYS)


def _reads_asterisk_as_all(cursor: Any) -> bool:
    """Return whether the server reads a selected column of this name as all of the table's, quoted
    or not: MySQL before 9 does."""
    cursor.execute("SELECT t.`*` FROM (SELECT 1 AS a, 2 AS `*`) t")
    return len(cursor.fetchone()) > 1


def _rows_of(
    cursor: Any, query: str, wanted: Collection[TableId]
) -> dict[TableId, list[tuple[Any, ...]]]:
    """Return the rows after schema and name, by table; the servers compare names without case."""
    cursor.execute(query, [[(table.schema, table.name) for table in wanted]])
    rows: dict[TableId, list[tuple[Any, ...]]] = defaultdict(list)
    for schema, name, *rest in cursor.fetchall():
        table = TableId(schema, name)
        if table in wanted:
            rows[table].append(tuple(rest))
    return rows


@dataclass(frozen=True, slots=True)
class _Parts:
    """Raw rows of one table."""

    kind: str
    engine: str
    columns: tuple[tuple[Any, ...], ...]
    keys: tuple[tuple[Any, ...], ...]
    comment: str
    asterisk: bool


@functools.lru_cache(maxsize=4096)
def _table(
    table: TableId,
    parts: _Parts,
    parents: tuple[TableId, ...],
    policy: Policy,
    key_configuration: KeyConfiguration,
) -> tuple[TableFacts, MysqlTable, str]:
    rows = [ColumnRow(*row) for row in parts.columns]
    columns = [read_column(row) for row in rows]
    keys = _unique_keys(parts.keys)
    primary = next((key for key in keys if key.name == "PRIMARY"), None)
    key = key_configuration.key_of(primary.columns if primary else ())
    index = _index_of(key_configuration.key, keys)
    described = MysqlTable(table, tuple(one for one in columns if one is not None), key)
    refused = parents if policy == "refuse" else ()
    suspect = Suspect(
        described, rows, parts.kind, parts.engine, keys, refused, key_configuration, parts.asterisk
    )
    problem, hint = problem_of(suspect) or (None, None)
    facts = TableFacts(
        table=str(table),
        schema=None if problem else described.schema,
        oid=0,
        storage="",
        columns=tuple(_column_digest(one) for one in described.columns),
        members="",
        key_definition=_key_digest(described, rows, parts.keys, index),
        membership=MEMBERSHIP,
        problem=problem,
        hint=hint,
        # The schema gives NOT NULL, as the log does.
        description=describe(str(table), parts.comment, {r.name: r.comment for r in rows}, ()),
    )
    return facts, described, index


def _index_of(named: Sequence[str], keys: Sequence[Key]) -> str:
    """Return the index over the columns that the settings name; one in their own order, if there
    is."""
    fitting = [key for key in keys if key.firm and set(key.columns) == set(named)]
    fitting.sort(key=lambda key: key.columns != tuple(named))
    return fitting[0].name if fitting else "PRIMARY"


def _unique_keys(rows: Sequence[tuple[Any, ...]]) -> list[Key]:
    """Return the unique keys; ``rows`` are ordered by key and place."""
    parts: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for name, column, prefix, nullable in rows:
        parts[name].append((column, prefix, nullable))
    return [
        Key(
            name,
            tuple(column for column, _, _ in columns),
            firm=all(c and not p and n != "YES" for c, p, n in columns),
        )
        for name, columns in parts.items()
    ]


def _column_digest(column: MysqlColumn) -> str:
    return _digest((column.name, column.source_type, column.charset))


def _key_digest(
    table: MysqlTable, rows: Sequence[ColumnRow], keys: Sequence[tuple[Any, ...]], index: str
) -> str:
    collations = {row.name: row.collation for row in rows}
    types = {one.name: (one.source_type, one.charset) for one in table.columns}
    prefixes = [(column, prefix) for name, column, prefix, _ in keys if name == index]
    return _digest([(*one, types.get(one[0]), collations.get(one[0])) for one in prefixes])


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]
