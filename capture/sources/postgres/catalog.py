"""What PostgreSQL's catalog says of the tables that are captured.

The log has no DDL, so the catalog is read again and again and compared (`capture.core.drift`). One
reader serves the rounds over all tables and the look inside a chunk's own transaction. All names
are qualified: the session's ``search_path`` is pinned to ``pg_catalog``.

Only catalogs are read, none of the functions that open a table (``pg_get_replica_identity_index``,
``pg_partition_tree``, ``pg_publication_tables``): those wait behind every ALTER TABLE and VACUUM
FULL, and fail on a table that is just being dropped.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from capture.core.events import TableFacts
from capture.sources.choices import Choice, Choices, no_choice, ways_on
from capture.sources.postgres.defaults import MISSING, known_defaults
from capture.sources.postgres.names import qualified, quoted
from capture.sources.postgres.type_names import TypeNames
from capture.sources.postgres.types import PgType, logical_type
from tideline.contract.manifest import ColumnNumbers
from tideline.contract.patterns import matches
from tideline.contract.schema import RESERVED_PREFIX, Column, TableId, TableSchema, is_reserved

_LABELS_MAX = 200

_LIST = """
SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
"""

_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, c.relreplident,
       c.relfilenode,
       coalesce((SELECT i.indexrelid FROM pg_catalog.pg_index i
                 WHERE i.indrelid = c.oid AND i.indisvalid AND i.indisunique AND i.indimmediate
                   AND i.indpred IS NULL AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
                                             ELSE i.indisprimary END), 0::oid),
       coalesce(p.membership, ''), coalesce(p.narrowed, false), greatest(c.reltuples, 0)::bigint,
       c.relnatts,
       (SELECT pg_catalog.string_agg(g.attnum::text, ',' ORDER BY g.attnum)
        FROM pg_catalog.pg_attribute g
        WHERE g.attrelid = c.oid AND g.attgenerated <> '' AND NOT g.attisdropped),
       c.xmin::text::bigint
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL ({membership} LIMIT 1) p ON true
WHERE c.oid = ANY (%(oids)s) AND c.relkind IN ('r', 'p')
"""

_MEMBERSHIP = """
SELECT r.oid::text || '.' || b.xmin::text AS membership, {narrowed} AS narrowed
FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication b ON b.oid = r.prpubid
WHERE b.pubname = %(publication)s AND r.prrelid = c.oid
"""
_NARROWED = "r.prqual IS NOT NULL OR r.prattrs IS NOT NULL"

_SCHEMA_MEMBERSHIP = """
UNION ALL SELECT s.oid::text || '.' || b.xmin::text, false
FROM pg_catalog.pg_publication_namespace s JOIN pg_catalog.pg_publication b ON b.oid = s.pnpubid
WHERE b.pubname = %(publication)s AND s.pnnspid = c.relnamespace
"""
"""Of PostgreSQL 15 and newer: whole schemas, row filters and column lists."""

_COLUMNS = f"""
SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.atthasmissing, a.attcollation,
       pg_catalog.format_type(a.atttypid, a.atttypmod), pg_catalog.format_type(a.atttypid, -1),
       {MISSING}
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY (%(oids)s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attrelid, a.attnum
"""  # noqa: S608

_FILLED = f"""
SELECT a.attrelid, a.attname, {MISSING} FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY (%(oids)s) AND a.attnum > 0 AND NOT a.attisdropped AND a.atthasmissing
"""  # noqa: S608
"""Columns of partitions: the root of a partitioned table has no rows that lack a value."""

_KEYS = """
SELECT i.indexrelid, k.attnum FROM pg_catalog.pg_index i,
  LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
WHERE i.indexrelid = ANY (%(indexes)s) AND k.place <= i.indnkeyatts ORDER BY i.indexrelid, k.place
"""

_LEAVES = """
WITH RECURSIVE tree(root, member) AS (
  SELECT r, r FROM unnest(%(oids)s::oid[]) AS roots(r)
  UNION ALL
  SELECT t.root, i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.member
)
SELECT t.root, leaf.oid, leaf.relfilenode,
       leaf.relreplident, greatest(leaf.reltuples, 0)::bigint,
       (WITH RECURSIVE up(index) AS (
          SELECT i.indexrelid FROM pg_catalog.pg_index i
          WHERE i.indrelid = leaf.oid AND CASE leaf.relreplident WHEN 'i' THEN i.indisreplident
                                               ELSE i.indisprimary END
          UNION ALL
          SELECT h.inhparent FROM up JOIN pg_catalog.pg_inherits h ON h.inhrelid = up.index
        ) SELECT array_agg(index::bigint) FROM up)
FROM tree t JOIN pg_catalog.pg_class leaf ON leaf.oid = t.member
WHERE leaf.relkind <> 'p' ORDER BY 1, 2
"""
"""The last column: the index that a leaf's old rows are logged by, and what that is a part of."""

_UNIQUE = """
SELECT i.indrelid, i.indexrelid, i.indisreplident,
       ARRAY(SELECT k.attnum FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
             WHERE k.place <= i.indnkeyatts)
FROM pg_catalog.pg_index i
WHERE i.indrelid = ANY (%(oids)s) AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL ORDER BY i.indrelid, i.indexrelid
"""
"""Indexes that can stand for a key, if none of their columns can be NULL."""

_NOT_NULL = """
SELECT a.attrelid, a.attnum FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY (%(oids)s) AND a.attnum > 0 AND a.attnotnull
"""

_LABELS = """
SELECT enumtypid, oid, enumlabel FROM pg_catalog.pg_enum WHERE enumtypid = ANY (%(oids)s)
ORDER BY enumtypid, oid
"""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table's facts with what only this source needs.

    ``partitioned``: its rows are those of its partitions; the rows of tables that inherit from any
    other are theirs alone. ``casts`` has for each column the type without its modifiers: casting to
    those would cut values off (``varchar(3)``) or round them.
    """

    facts: TableFacts
    table: TableId
    partitioned: bool
    casts: tuple[str, ...]
    rows_estimate: int


def list_tables(cursor: Any, include: Sequence[str], exclude: Sequence[str]) -> dict[int, TableId]:
    """The ordinary tables and partition roots that the patterns name, by oid."""
    cursor.execute(_LIST)
    tables = {row[0]: TableId(row[1], row[2]) for row in cursor.fetchall()}
    return {oid: table for oid, table in tables.items() if matches(table, include, exclude)}


def read_tables(
    cursor: Any,
    oids: Sequence[int],
    *,
    publication: str,
    types: TypeNames,
    choices: Choices = no_choice,
) -> list[CatalogTable]:
    """The facts of the tables ``oids``, in the order of their names; missing ones are left out.

    ``choices`` says of which tables the rows are told apart by other columns than the declared key,
    or by none.
    """
    given = {"oids": list(oids), "publication": publication}
    cursor.execute(_tables_query(cursor.connection.server_version), given)
    tables = cursor.fetchall()
    columns = _by_first(cursor, _COLUMNS, given)
    keys = _by_first(cursor, _KEYS, {"indexes": [row[7] for row in tables]})
    roots = [row[0] for row in tables if row[3] == "p"]
    leaves = _by_first(cursor, _LEAVES, {"oids": roots}) if roots else {}
    types.load(cursor, {row[2] for rows in columns.values() for row in rows})
    chosen = {row[0]: choices(TableId(row[1], row[2])) for row in tables}
    named = {"oids": [oid for oid, choice in chosen.items() if choice.key]}
    unique = _by_first(cursor, _UNIQUE, named) if named["oids"] else {}
    firm = _by_first(cursor, _NOT_NULL, named) if named["oids"] else {}
    partitions = {"oids": [leaf[0] for found in leaves.values() for leaf in found]}
    filled = _by_first(cursor, _FILLED, partitions) if leaves else {}
    found = []
    for row in tables:
        oid = row[0]
        parts = _Parts(
            row,
            columns.get(oid, []),
            keys.get(row[7], []),
            leaves.get(oid, []),
            filled=[one for leaf in leaves.get(oid, []) for one in filled.get(leaf[0], [])],
        )
        if chosen[oid].key:
            parts = _with_named_key(parts, chosen[oid].key, unique.get(oid, []), firm.get(oid, []))
        found.append(_table(cursor, parts, types, chosen[oid]))
    return sorted(found, key=lambda table: table.table)


def _tables_query(version: int) -> str:
    filters = version >= 150000
    membership = _MEMBERSHIP.format(narrowed=_NARROWED if filters else "false")
    return _TABLES.format(membership=membership + (_SCHEMA_MEMBERSHIP if filters else ""))


@dataclass(frozen=True, slots=True)
class _Parts:
    """Raw rows of one table: pg_class, columns, key attribute numbers, partition leaves, and the
    columns that these have filled.
    ``refusal``: why the key that the settings name is none, with what helps."""

    row: Sequence[Any]
    columns: Sequence[Sequence[Any]]
    key: Sequence[Sequence[Any]]
    leaves: Sequence[Sequence[Any]]
    refusal: tuple[str, str] | None = None
    filled: Sequence[Sequence[Any]] = ()


def _by_first(cursor: Any, query: str, given: dict[str, Any]) -> dict[int, list[tuple[Any, ...]]]:
    cursor.execute(query, given)
    rows = defaultdict(list)
    for row in cursor.fetchall():
        rows[row[0]].append(row[1:])
    return rows


def _with_named_key(
    parts: _Parts,
    key: Sequence[str],
    unique: Sequence[Sequence[Any]],
    firm: Sequence[Sequence[Any]],
) -> _Parts:
    """``parts`` with the key that the settings name, or why it is none: uniqueness that nobody
    enforces is no key, and neither is what old rows are not logged by."""
    table = TableId(parts.row[1], parts.row[2])
    alter = f"ALTER TABLE {qualified(table)}"
    numbers = {row[1]: row[0] for row in parts.columns}
    said = f"the key that the settings name ({', '.join(key)})"

    def refused(reason: str, hint: str) -> _Parts:
        return replace(parts, key=(), refusal=(f"{said} is none: {reason}", hint))

    absent = [name for name in key if name not in numbers]
    if absent:
        return refused(f"there is no column {', '.join(absent)}", "correct key in the settings")
    not_null = {number for (number,) in firm}
    loose = [name for name in key if numbers[name] not in not_null]
    if loose:
        fix = ", ".join(f"ALTER COLUMN {quoted(name)} SET NOT NULL" for name in loose)
        return refused(f"{', '.join(loose)} may be NULL", f"{alter} {fix}")
    wanted = {numbers[name] for name in key}
    indexes = {row[0]: row[1] for row in unique if set(row[2]) == wanted}
    columns = ", ".join(quoted(name) for name in key)
    if not indexes:
        return refused(
            "no unique index covers exactly these columns",
            f"CREATE UNIQUE INDEX CONCURRENTLY ON {qualified(table)} ({columns})",
        )
    logged = next((index for index, identity in indexes.items() if identity), None)
    primary = parts.row[7] if parts.row[5] in ("d", "f") else None
    if parts.row[5] == "d" and primary in indexes:
        logged = primary
    if parts.row[5] == "f":
        logged = min(indexes)
    if logged is None:
        return refused(
            "old rows are not logged by it",
            f"{alter} REPLICA IDENTITY USING INDEX … of these columns, or REPLICA IDENTITY FULL",
        )
    row = [*parts.row[:7], logged, *parts.row[8:]]
    return replace(parts, row=row, key=[(numbers[name],) for name in key])


def _table(cursor: Any, parts: _Parts, types: TypeNames, choice: Choice) -> CatalogTable:
    oid, schema_name, name, kind, _, _, filenode, *_ = parts.row
    membership, _, rows, last, _, changed_by = parts.row[8:]
    table = TableId(schema_name, name)
    resolved = tuple(types.resolve(row[2], row[3], row[6]) for row in parts.columns)
    names = {row[0]: row[1] for row in parts.columns}
    key = tuple(names[number] for (number,) in parts.key if number in names)
    problem, hint = _problem(table, key, parts, choice)
    schema = None if problem else make_schema(table, list(names.values()), resolved, key)
    filled = [(row[1], row[8]) for row in parts.columns if row[4]]
    filled += [(column, text) for column, text in parts.filled]
    logical = {row[1]: logical_type(pg) for row, pg in zip(parts.columns, resolved, strict=True)}
    facts = TableFacts(
        table=str(table),
        schema=schema,
        oid=oid,
        storage=str(filenode),
        columns=tuple(_digest(row[:4]) for row in parts.columns),
        members=_members(cursor, parts, types, resolved),
        key_definition=f"{oid}:{_key_digest(parts)}",
        membership=membership,
        backfilled=tuple(dict.fromkeys(name for name, _ in filled)),
        problem=problem,
        hint=hint,
        narrowed=bool(parts.row[9]),
        numbers=ColumnNumbers(oid, tuple(row[0] for row in parts.columns), last),
        defaults=known_defaults(filled, logical),
        changed_by=changed_by,
    )
    casts = tuple(row[7] for row in parts.columns)
    return CatalogTable(
        facts, table, kind == "p", casts, rows + sum(leaf[3] for leaf in parts.leaves)
    )


def make_schema(
    table: TableId, names: Sequence[str], types: Sequence[PgType], key: tuple[str, ...]
) -> TableSchema:
    """The contract's schema of a table with these columns.

    Only key columns are said not to be NULL: the log does not tell of others.
    """
    columns = tuple(
        Column(name, str(logical_type(pg)), pg.name, nullable=name not in key)
        for name, pg in zip(names, types, strict=True)
    )
    return TableSchema(str(table), columns, key)


def _problem(
    table: TableId, key: tuple[str, ...], parts: _Parts, choice: Choice
) -> tuple[str | None, str | None]:
    """Why the table cannot be captured, and what would change that."""
    name = qualified(table)
    persistence, identity, narrowed = parts.row[4], parts.row[5], parts.row[9]
    reserved = [row[1] for row in parts.columns if is_reserved(row[1])]
    if persistence != "p":
        return "it is unlogged: its changes are not in the log", f"ALTER TABLE {name} SET LOGGED"
    if reserved:
        return f"columns begin with {RESERVED_PREFIX}: {', '.join(reserved)}", "rename them"
    if identity == "n" or any(leaf[2] == "n" for leaf in parts.leaves):
        return "its replica identity is NOTHING", f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT"
    if key and any(not _logged_by_key(parts, leaf) for leaf in parts.leaves):
        return "a partition's replica identity is another than the key of the whole table", (
            "give every partition the replica identity of the root:"
            " ALTER TABLE … REPLICA IDENTITY DEFAULT, or USING INDEX …"
        )
    if narrowed:
        return "the publication leaves out rows or columns of it", (
            f"ALTER PUBLICATION … DROP TABLE {name}; it is then added again, as a whole"
        )
    if parts.refusal is not None:
        return parts.refusal
    if key and len(key) == len(parts.key):
        return None, None
    return _keyless_problem(table, parts, choice)


def _keyless_problem(
    table: TableId, parts: _Parts, choice: Choice
) -> tuple[str | None, str | None]:
    """Of a table without a key, or whose key has a column that the log lacks."""
    name = qualified(table)
    if not choice.keyless or parts.key:
        return "it has no key: no primary key and no replica identity index", (
            f"ALTER TABLE {name} ADD PRIMARY KEY (…), or a unique index over NOT NULL columns"
            f" and ALTER TABLE {name} REPLICA IDENTITY USING INDEX …; {ways_on(table)}"
        )
    if parts.row[5] != "f" or any(leaf[2] != "f" for leaf in parts.leaves):
        return "it has no key, and the log does not hold the row before a change of it", (
            f"ALTER TABLE {name} REPLICA IDENTITY FULL"
            + (", and of each of its partitions" if parts.leaves else "")
        )
    return None, None


def _logged_by_key(parts: _Parts, leaf: Sequence[Any]) -> bool:
    """Whether old rows of the partition are logged with the key of the whole table: otherwise its
    deletes name no row, or the server refuses them because the root is published."""
    return leaf[2] == "f" or parts.row[7] in (leaf[4] or ())


def _members(cursor: Any, parts: _Parts, types: TypeNames, resolved: Sequence[PgType]) -> str:
    """A digest of the partitions, of row types' attributes and of which columns are generated (one
    that is so no longer comes with values), ``+``, and one per enum label (new labels change no
    row)."""
    rows = types.rows(resolved)
    generated = [parts.row[12]] if parts.row[12] else []
    partitions = _digest([[leaf[:2] for leaf in parts.leaves], *rows, *generated])
    enums = types.enums(resolved)
    if not enums:
        return f"{partitions}+"
    cursor.execute(_LABELS, {"oids": sorted(enums)})
    labels = [_digest(row)[:6] for row in cursor.fetchall()]
    if len(labels) > _LABELS_MAX:
        labels = [_digest(labels)]
    return f"{partitions}+{','.join(labels)}"


def _key_digest(parts: _Parts) -> str:
    numbers = [number for (number,) in parts.key]
    columns = {row[0]: row for row in parts.columns}
    return _digest([(n, *columns[n][1:4], columns[n][5]) for n in numbers if n in columns])


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]
