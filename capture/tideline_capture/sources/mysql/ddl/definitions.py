"""Reads statements that define tables, and those that define other things of a server."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.ddl.alterations import AlterTableReader
from tideline_capture.sources.mysql.ddl.statement import DdlStatement, StatementKind
from tideline_capture.sources.mysql.ddl.tokens import DdlWords, Unclear


def read_truncate(words: DdlWords) -> DdlStatement:
    """Read ``TRUNCATE [TABLE] table``."""
    words.any_of("TABLE")
    return DdlStatement(StatementKind.TRUNCATE, words.keywords, tables=(words.table(),))


def read_create(words: DdlWords) -> DdlStatement:
    """Read CREATE of a table, of an index, or of something else."""
    replaces = words.accept("OR", "REPLACE")
    if words.any_of("TEMPORARY"):
        kind = StatementKind.OTHER if words.accept("TABLE") else StatementKind.UNKNOWN
        return DdlStatement(kind, words.keywords)
    if words.accept("TABLE"):
        perhaps = words.accept("IF", "NOT", "EXISTS")
        table = words.table()
        kind = StatementKind.DML if _selects(words) else StatementKind.CREATE_TABLE
        return DdlStatement(kind, words.keywords, (table,), replaces=replaces, perhaps=perhaps)
    words.any_of("ONLINE", "OFFLINE")
    if words.accept("SPATIAL", "INDEX"):
        return _read_index(words)
    words.any_of("UNIQUE", "FULLTEXT", "VECTOR")
    return _read_index(words) if words.accept("INDEX") else read_other(words)


def _selects(words: DdlWords) -> bool:
    """Return whether a CREATE TABLE takes its rows from a query, which is logged so in statement
    form only: in row form the servers log the bare table, then rows."""
    depth = 0
    for token in words.rest():
        depth += (token.upper == "(") - (token.upper == ")")
        if token.upper == "SELECT" or (not depth and token.upper in ("VALUES", "TABLE")):
            return True
    return False


def _read_index(words: DdlWords) -> DdlStatement:
    """Read CREATE INDEX or DROP INDEX, from the index's name up to its table."""
    if not words.accept("IF", "NOT", "EXISTS"):
        words.accept("IF", "EXISTS")
    is_key = words.name().upper() == "PRIMARY"
    words.skip_past("ON")
    steps = None if is_key else ()
    tables = (words.table(),)
    return DdlStatement(
        StatementKind.ALTER_TABLE, words.keywords, tables, neutral=not is_key, steps=steps
    )


def read_alter(words: DdlWords) -> DdlStatement:
    """Read ALTER of a table, or of something else."""
    words.any_of("ONLINE", "OFFLINE")
    ignores = words.accept("IGNORE")
    if not words.accept("TABLE"):
        return read_other(words)
    words.accept("IF", "EXISTS")
    table = words.table()
    _skip_waiting(words)
    others: list[TableId] = []
    news: list[TableId] = []
    alteration = AlterTableReader()
    for clause in words.clauses():
        others += _exchanged(words.within(clause))
        news += _new_name(words.within(clause))
        alteration.read(clause, words.schema)
    read = alteration.end()
    # Rows that do not fit are thrown away by a statement that ignores errors.
    known = None if ignores else read.columns
    return DdlStatement(
        StatementKind.ALTER_TABLE,
        words.keywords,
        tables=(table, *others),
        renames=tuple((table, new) for new in news),
        neutral=not ignores and read.neutral,
        steps=None if known is None else known.steps,
        converts=known is not None and known.converts,
        recodes=known is not None and known.recodes,
    )


def _new_name(clause: DdlWords) -> Iterator[TableId]:
    """Take ``RENAME [TO] table``; yield the table."""
    if clause.peek().upper != "RENAME" or clause.peek(1).upper in ("COLUMN", "INDEX", "KEY"):
        return
    clause.next()
    clause.any_of("TO", "AS", "=")
    yield clause.table()


def _exchanged(clause: DdlWords) -> Iterator[TableId]:
    """Take ``EXCHANGE PARTITION … WITH TABLE`` or ``CONVERT … TABLE``; yield the other table."""
    if clause.any_of("EXCHANGE", "CONVERT"):
        while clause:
            if clause.accept("TABLE"):
                yield clause.table()
            else:
                clause.next()


def _skip_waiting(words: DdlWords) -> None:
    """Take MariaDB's ``WAIT n`` or ``NOWAIT`` after a table's name."""
    if words.accept("WAIT"):
        words.next()
    else:
        words.accept("NOWAIT")


def read_drop(words: DdlWords) -> DdlStatement:
    """Read DROP of tables, of a database, of an index, or of something else."""
    if words.accept("TEMPORARY"):
        return DdlStatement(StatementKind.OTHER, words.keywords)
    if words.any_of("TABLE", "TABLES"):
        words.accept("IF", "EXISTS")
        tables = words.tables()
        _skip_waiting(words)
        words.any_of("RESTRICT", "CASCADE")
        return DdlStatement(_whole(words, StatementKind.DROP_TABLE), words.keywords, tables)
    if words.any_of("DATABASE", "SCHEMA"):
        words.accept("IF", "EXISTS")
        schema = words.name()
        return DdlStatement(
            _whole(words, StatementKind.DROP_DATABASE), words.keywords, schema=schema
        )
    words.any_of("ONLINE", "OFFLINE")
    return _read_index(words) if words.accept("INDEX") else read_other(words)


def read_rename(words: DdlWords) -> DdlStatement:
    """Read RENAME TABLE, whose pairs take effect one after another."""
    if not words.any_of("TABLE", "TABLES"):
        kind = StatementKind.OTHER if words.accept("USER") else StatementKind.UNKNOWN
        return DdlStatement(kind, words.keywords)
    words.accept("IF", "EXISTS")
    pairs = []
    while True:
        old = words.table()
        _skip_waiting(words)
        if not words.accept("TO"):
            raise Unclear
        pairs.append((old, words.table()))
        if not words.accept(","):
            break
    tables = tuple(dict.fromkeys(table for pair in pairs for table in pair))
    kind = _whole(words, StatementKind.RENAME_TABLE)
    return DdlStatement(kind, words.keywords, tables, renames=tuple(pairs))


def read_repair(words: DdlWords) -> DdlStatement:
    """Read REPAIR TABLE, which may throw rows away."""
    words.any_of("NO_WRITE_TO_BINLOG", "LOCAL")
    if not words.any_of("TABLE", "TABLES"):
        kind = StatementKind.OTHER if words.accept("VIEW") else StatementKind.UNKNOWN
        return DdlStatement(kind, words.keywords)
    return DdlStatement(StatementKind.ALTER_TABLE, words.keywords, words.tables())


_OBJECTS = re.compile(
    "VIEW|TRIGGER|PROCEDURE|FUNCTION|EVENT|USER|ROLE|DATABASE|SCHEMA|SERVER|TABLESPACE|LOGFILE"
    "|SEQUENCE|PACKAGE|REFERENCE|RESOURCE|INSTANCE|LIBRARY"
)


def read_other(words: DdlWords) -> DdlStatement:
    """Read CREATE, ALTER or DROP of something that is no table: its kind comes after options such
    as a definer, and before any text of the user's own."""
    for token in words.rest():
        if _OBJECTS.fullmatch(token.upper):
            words.taken.append(token.upper)
            return DdlStatement(StatementKind.OTHER, words.keywords)
    return DdlStatement(StatementKind.UNKNOWN, words.keywords)


def _whole(words: DdlWords, kind: StatementKind) -> StatementKind:
    """Return ``kind``, if nothing is left that was not understood."""
    return StatementKind.UNKNOWN if words else kind
