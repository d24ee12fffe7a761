"""The description of captured tables in PostgreSQL's catalog.

The log has no DDL, so the catalog is read repeatedly and compared (`tideline_capture.core.drift`).
One reader serves the rounds over all tables and the look inside a chunk's own transaction. All
names are qualified: the session's ``search_path`` is pinned to ``pg_catalog``.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tideline.contract.description import describe
from tideline.contract.open_state import ColumnNumbers
from tideline.contract.patterns import matches
from tideline.contract.schema import Column, TableId, TableSchema
from tideline_capture.core.facts import TableFacts
from tideline_capture.sources.key_configuration import (
    KeyConfiguration,
    KeyConfigurations,
    default_key,
)
from tideline_capture.sources.postgres.catalog.defaults import known_defaults
from tideline_capture.sources.postgres.catalog.problems import (
    TableParts,
    problem_of,
    with_named_key,
)
from tideline_capture.sources.postgres.catalog.queries import (
    COLUMNS,
    FILLED,
    KEYS,
    LABELS,
    LEAVES,
    LIST,
    NOT_NULL,
    UNIQUE,
    tables_query,
)
from tideline_capture.sources.postgres.catalog.type_names import TypeNames
from tideline_capture.sources.postgres.names import pasteable
from tideline_capture.sources.postgres.types import PgType, logical_type

_LABELS_MAX = 200


@dataclass(frozen=True, slots=True)
class PostgresCatalogTable:
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
    """Return the ordinary tables and partition roots that the patterns name, by oid."""
    cursor.execute(LIST)
    tables = {row[0]: TableId(row[1], row[2]) for row in cursor.fetchall()}
    return {oid: table for oid, table in tables.items() if matches(table, include, exclude)}


def read_tables(
    cursor: Any,
    oids: Sequence[int],
    *,
    publication: str,
    types: TypeNames,
    key_configurations: KeyConfigurations = default_key,
) -> list[PostgresCatalogTable]:
    """Return the facts of the tables ``oids``, in the order of their names; missing ones are left
    out.

    ``key_configurations`` gives the tables whose rows are identified by other columns than the
    declared key, or by none.
    """
    given = {"oids": list(oids), "publication": publication}
    cursor.execute(tables_query(cursor.connection.server_version), given)
    tables = cursor.fetchall()
    columns = _by_first(cursor, COLUMNS, given)
    keys = _by_first(cursor, KEYS, {"indexes": [row[7] for row in tables]})
    roots = [row[0] for row in tables if row[3] == "p"]
    leaves = _by_first(cursor, LEAVES, {"oids": roots}) if roots else {}
    types.load(cursor, {row[2] for rows in columns.values() for row in rows})
    chosen = {row[0]: key_configurations(TableId(row[1], row[2])) for row in tables}
    named = {"oids": [oid for oid, key_configuration in chosen.items() if key_configuration.key]}
    unique = _by_first(cursor, UNIQUE, named) if named["oids"] else {}
    firm = _by_first(cursor, NOT_NULL, named) if named["oids"] else {}
    partitions = {"oids": [leaf[0] for found in leaves.values() for leaf in found]}
    filled = _by_first(cursor, FILLED, partitions) if leaves else {}
    found = []
    for row in tables:
        oid = row[0]
        parts = TableParts(
            row,
            columns.get(oid, []),
            keys.get(row[7], []),
            leaves.get(oid, []),
            filled=[one for leaf in leaves.get(oid, []) for one in filled.get(leaf[0], [])],
        )
        if chosen[oid].key:
            parts = with_named_key(parts, chosen[oid].key, unique.get(oid, []), firm.get(oid, []))
        found.append(_table(cursor, parts, types, chosen[oid]))
    return sorted(found, key=lambda table: table.table)


def _by_first(cursor: Any, query: str, given: dict[str, Any]) -> dict[int, list[tuple[Any, ...]]]:
    cursor.execute(query, given)
    rows = defaultdict(list)
    for row in cursor.fetchall():
        rows[row[0]].append(row[1:])
    return rows


def _table(
    cursor: Any, parts: TableParts, types: TypeNames, key_configuration: KeyConfiguration
) -> PostgresCatalogTable:
    oid, schema_name, name, kind, _, _, filenode, *_ = parts.row
    membership, _, rows, last, _, changed_by, comment = parts.row[8:]
    table = TableId(schema_name, name)
    resolved = tuple(types.resolve(row[2], row[3], row[6]) for row in parts.columns)
    names = {row[0]: row[1] for row in parts.columns}
    key = tuple(names[number] for (number,) in parts.key if number in names)
    problem, hint = problem_of(table, key, parts, key_configuration)
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
        hint=hint and pasteable(hint),
        narrowed=bool(parts.row[9]),
        numbers=ColumnNumbers(oid, tuple(row[0] for row in parts.columns), last),
        defaults=known_defaults(filled, logical),
        changed_by=changed_by,
        columns_too=any(_not_before(row[9], changed_by) for row in parts.columns),
        description=describe(
            str(table),
            comment,
            {row[1]: row[11] for row in parts.columns},
            tuple(row[1] for row in parts.columns if row[10]),
        ),
    )
    casts = tuple(row[7] for row in parts.columns)
    return PostgresCatalogTable(
        facts, table, kind == "p", casts, rows + sum(leaf[3] for leaf in parts.leaves)
    )


def _not_before(transaction: int, other: int) -> bool:
    """Return whether a transaction got its id with or after another one. Ids wrap around; the first
    three are reserved."""
    return transaction > 2 and (transaction - other) % (1 << 32) < 1 << 31


def make_schema(
    table: TableId, names: Sequence[str], types: Sequence[PgType], key: tuple[str, ...]
) -> TableSchema:
    """Return the contract's schema of a table with these columns.

    Only key columns are declared not NULL: the log has no such information on others.
    """
    columns = tuple(
        Column(name, str(logical_type(pg)), pg.name, nullable=name not in key)
        for name, pg in zip(names, types, strict=True)
    )
    return TableSchema(str(table), columns, key)


def _members(cursor: Any, parts: TableParts, types: TypeNames, resolved: Sequence[PgType]) -> str:
    """Return a digest of the table's other parts.

    It covers the partitions, the attributes of row types and the list of generated columns (one
    that is generated no longer comes with values); then ``+``, and one digest per enum label (new
    labels change no row).
    """
    rows = types.rows(resolved)
    generated = [parts.row[12]] if parts.row[12] else []
    partitions = _digest([[leaf[:2] for leaf in parts.leaves], *rows, *generated])
    enums = types.enums(resolved)
    if not enums:
        return f"{partitions}+"
    cursor.execute(LABELS, {"oids": sorted(enums)})
    labels = [_digest(row)[:6] for row in cursor.fetchall()]
    if len(labels) > _LABELS_MAX:
        labels = [_digest(labels)]
    return f"{partitions}+{','.join(labels)}"


def _key_digest(parts: TableParts) -> str:
    numbers = [number for (number,) in parts.key]
    columns = {row[0]: row for row in parts.columns}
    return _digest([(n, *columns[n][1:4], columns[n][5]) for n in numbers if n in columns])


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]
