"""Foreign keys that carry a change of one table over to another, which the log does not hold.

InnoDB carries out CASCADE and SET NULL below the log. From MySQL 9.6 on the SQL layer does it, and
the log has the child's rows as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Literal

import pymysql
from pymysql.constants import ER

from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.names import qualified, quoted

_CASCADING = """
SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME
FROM information_schema.REFERENTIAL_CONSTRAINTS
WHERE (CONSTRAINT_SCHEMA, TABLE_NAME) IN %s
  AND (DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT')
    OR UPDATE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))
"""
_FOREIGN_KEYS = """
SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME
FROM information_schema.KEY_COLUMN_USAGE
WHERE (TABLE_SCHEMA, TABLE_NAME) IN %s AND REFERENCED_TABLE_NAME IS NOT NULL
"""
"""MariaDB shows the rules only to those who may change the table, the keys to all who may read."""

_HARMLESS = re.compile(r"( ON (DELETE|UPDATE) (RESTRICT|NO ACTION))*,?")

_Edges = dict[TableId, set[TableId]]


def read_cascades(
    cursor: Any, tables: Collection[TableId], *, flavour: Literal["mysql", "mariadb"]
) -> dict[TableId, tuple[TableId, ...]]:
    """Return, by table, those whose changes cascade to it without being logged, through others too.

    A table that cascades to itself is among its own. The user must be allowed to read the tables in
    between; a table above one that cannot be seen is not found.
    """
    direct: _Edges = {}
    asked: set[TableId] = set()
    asking = wanted = set(tables)
    while asking:
        found = _mysql_edges(cursor, asking) if flavour == "mysql" else _edges(cursor, asking)
        direct.update(found)
        asked |= asking
        asking = {parent for parents in found.values() for parent in parents} - asked
    if not direct or (flavour == "mysql" and _logs_cascades(cursor)):
        return {}
    return {child: tuple(sorted(_ancestors(child, direct))) for child in wanted & direct.keys()}


def _mysql_edges(cursor: Any, children: Collection[TableId]) -> _Edges:
    cursor.execute(_CASCADING, [[(child.schema, child.name) for child in children]])
    edges: _Edges = defaultdict(set)
    for child_schema, child, parent_schema, parent in cursor.fetchall():
        if TableId(child_schema, child) in children:
            edges[TableId(child_schema, child)].add(TableId(parent_schema, parent))
    return edges


def _edges(cursor: Any, children: Collection[TableId]) -> _Edges:
    """Read the rules on MariaDB: they stand in the table's own definition."""
    cursor.execute(_FOREIGN_KEYS, [[(child.schema, child.name) for child in children]])
    keys: dict[TableId, dict[str, TableId]] = defaultdict(dict)
    for child_schema, child, constraint, *parent in cursor.fetchall():
        if TableId(child_schema, child) in children:
            keys[TableId(child_schema, child)][constraint] = TableId(*parent)
    edges: _Edges = {}
    for child, parents in keys.items():
        definition = _definition(cursor, child)
        found = {parents[name] for name in parents if is_cascading(definition, name)}
        if found:
            edges[child] = found
    return edges


def _definition(cursor: Any, table: TableId) -> str:
    """Return the statement that would make the table; empty when it has been dropped."""
    try:
        cursor.execute(f"SHOW CREATE TABLE {qualified(table)}")
    except pymysql.ProgrammingError as error:
        if error.args[0] != ER.NO_SUCH_TABLE:
            raise
        return ""
    return str(cursor.fetchone()[1])


def is_cascading(definition: str, constraint: str) -> bool:
    """Return whether a foreign key in a CREATE TABLE of MariaDB does anything but refuse.

    One that is not understood counts; one that is not there does not.
    """
    lines = (line.strip() for line in definition.splitlines())
    begin = f"CONSTRAINT {quoted(constraint)} FOREIGN KEY "
    (line,) = [line for line in lines if line.startswith(begin)] or [""]
    if not line:
        return constraint in definition
    return _HARMLESS.fullmatch(line.rpartition(")")[2]) is None


def _logs_cascades(cursor: Any) -> bool:
    cursor.execute("SHOW GLOBAL VARIABLES LIKE 'innodb\\_native\\_foreign\\_keys'")
    row = cursor.fetchone()
    return row is not None and row[1] == "OFF"


def _ancestors(child: TableId, direct: Mapping[TableId, set[TableId]]) -> set[TableId]:
    found: set[TableId] = set()
    open_ends = [child]
    while open_ends:
        for parent in direct.get(open_ends.pop(), ()):
            if parent not in found:
                found.add(parent)
                open_ends.append(parent)
    return found
