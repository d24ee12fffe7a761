"""Defines the kinds of logged statements, and the facts about one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tideline.contract.schema import TableId
from tideline.contract.steps import ColumnStep
from tideline_capture.sources.mysql.binlog.xid import Xid


class StatementKind(Enum):
    """The effect of a statement, as far as a reader of rows is concerned."""

    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    SAVEPOINT = auto()
    """Also RELEASE SAVEPOINT: nothing happens to rows."""
    ROLLBACK_TO = auto()
    """Rows since the savepoint are undone, though they are in the log."""
    XA_START = auto()
    XA_END = auto()
    XA_PREPARE = auto()
    XA_COMMIT = auto()
    XA_ROLLBACK = auto()
    DML = auto()
    """Rows may have changed, and are not in the log: statement form."""
    TRUNCATE = auto()
    CREATE_TABLE = auto()
    ALTER_TABLE = auto()
    """Also CREATE INDEX, DROP INDEX, and REPAIR TABLE, which may throw rows away."""
    DROP_TABLE = auto()
    RENAME_TABLE = auto()
    DROP_DATABASE = auto()
    OTHER = auto()
    """No table's rows: users, views, routines, temporary tables …"""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """A statement of the log.

    ``words`` are its first keywords, fit for messages and logs; whole texts may hold values, and
    those of `StatementKind.OTHER` passwords. ``tables`` are all that it names as changed, in
    letters as written: under ``lower_case_table_names`` the server's own names may differ in case.
    ``neutral``, of ALTER_TABLE only: existing rows have the values they had, and NULL in new
    columns; it is proven by a list of clauses, so False says little. ``replaces``: CREATE OR
    REPLACE TABLE, an older table of that name is gone. ``perhaps``: IF NOT EXISTS was given.
    ``renames`` are pairs, to be taken one after another. ``schema`` is the database that was
    dropped, ``savepoint`` the one rolled back to. ``one_phase``, of XA_COMMIT: it was never
    prepared. ``steps``, of ALTER_TABLE, are all changes to the columns of its table (without
    types), None where they are unknown; ``converts``: values of columns are converted, which only a
    strict server does without changing them, and ``recodes``: among them texts, perhaps to another
    character set.
    """

    kind: StatementKind
    words: str = ""
    tables: tuple[TableId, ...] = ()
    neutral: bool = False
    replaces: bool = False
    perhaps: bool = False
    renames: tuple[tuple[TableId, TableId], ...] = ()
    schema: str = ""
    savepoint: str = ""
    xid: Xid | None = None
    one_phase: bool = False
    steps: tuple[ColumnStep, ...] | None = None
    converts: bool = False
    recodes: bool = False


def names_begun(statement: DdlStatement) -> dict[TableId, bool | None]:
    """Return the tables that have their names by ``statement``; whether they are empty, as
    `Begun`."""
    if statement.kind is StatementKind.CREATE_TABLE:
        return dict.fromkeys(statement.tables, None if statement.perhaps else True)
    begun: dict[TableId, bool | None] = {}
    for old, new in statement.renames:
        begun.pop(old, None)
        begun[new] = False
    return begun


def names_ended(statement: DdlStatement) -> tuple[TableId, ...]:
    """Return the names that no table has after ``statement``, or another table than before. A table
    that is created again in the place of an older one is among them."""
    if statement.kind is StatementKind.DROP_TABLE or statement.replaces:
        return statement.tables
    return tuple(dict.fromkeys(table for pair in statement.renames for table in pair))
