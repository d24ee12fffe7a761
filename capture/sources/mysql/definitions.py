"""The statements that define tables, and the other things of a server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from capture.sources.mysql.alterations import clauses, is_harmless
from capture.sources.mysql.column_changes import read_changes
from capture.sources.mysql.sql_tokens import Token
from capture.sources.mysql.statement import Kind, Statement
from capture.sources.mysql.statement_words import NOTHING, Unclear, Words
from tideline.contract.schema import TableId


def read_truncate(words: Words) -> Statement:
    words.any_of("TABLE")
    return replace(words.made(Kind.TRUNCATE), tables=(words.table(),))


def read_create(words: Words) -> Statement:
    replaces = words.accept("OR", "REPLACE")
    if words.any_of("TEMPORARY"):
        return words.made(Kind.OTHER if words.accept("TABLE") else Kind.UNKNOWN)
    if words.accept("TABLE"):
        perhaps = words.accept("IF", "NOT", "EXISTS")
        table = words.table()
        kind = Kind.DML if _selects(words.rest()) else Kind.CREATE_TABLE
        return replace(words.made(kind), tables=(table,), replaces=replaces, perhaps=perhaps)
    words.any_of("ONLINE", "OFFLINE")
    if words.accept("SPATIAL", "INDEX"):
        return _index(words)
    words.any_of("UNIQUE", "FULLTEXT", "VECTOR")
    return _index(words) if words.accept("INDEX") else read_other(words)


def _selects(rest: Sequence[Token]) -> bool:
    """Whether a CREATE TABLE takes its rows from a query, which is logged so in statement form
    only: in row form the servers log the bare table, then rows."""
    depth = 0
    for token in rest:
        depth += (token.upper == "(") - (token.upper == ")")
        if token.upper == "SELECT" or (not depth and token.upper in ("VALUES", "TABLE")):
            return True
    return False


def _index(words: Words) -> Statement:
    """CREATE INDEX or DROP INDEX, up to its table."""
    if not words.accept("IF", "NOT", "EXISTS"):
        words.accept("IF", "EXISTS")
    is_key = words.name().upper() == "PRIMARY"
    while not words.accept("ON"):
        if words.next() is NOTHING:
            raise Unclear
    made = words.made(Kind.ALTER_TABLE)
    return replace(
        made, tables=(words.table(),), neutral=not is_key, steps=() if not is_key else None
    )


def read_alter(words: Words) -> Statement:
    words.any_of("ONLINE", "OFFLINE")
    ignores = words.accept("IGNORE")
    if not words.accept("TABLE"):
        return read_other(words)
    words.accept("IF", "EXISTS")
    table = words.table()
    _skip_waiting(words)
    parts = clauses(words.rest())
    changes = None if ignores else read_changes([words.within(part) for part in parts])
    others = tuple(words.within(part) for part in parts)
    return replace(
        words.made(Kind.ALTER_TABLE),
        tables=(table, *(other for part in others for other in _exchanged(part))),
        renames=tuple((table, new) for part in others for new in _new_name(part)),
        neutral=not ignores and all(is_harmless(part) for part in parts),
        steps=None if changes is None else changes.steps,
        converts=changes is not None and changes.converts,
        recodes=changes is not None and changes.recodes,
    )


def _new_name(clause: Words) -> Iterator[TableId]:
    """Of ``RENAME [TO] table``."""
    if clause.accept("RENAME") and not clause.any_of("COLUMN", "INDEX", "KEY"):
        clause.any_of("TO", "AS", "=")
        yield clause.table()


def _exchanged(clause: Words) -> Iterator[TableId]:
    """The other table of ``EXCHANGE PARTITION … WITH TABLE`` and ``CONVERT … TABLE``."""
    if clause.any_of("EXCHANGE", "CONVERT"):
        while clause.rest():
            if clause.accept("TABLE"):
                yield clause.table()
            else:
                clause.next()


def _skip_waiting(words: Words) -> None:
    """MariaDB's ``WAIT n`` and ``NOWAIT`` after a table's name."""
    if words.accept("WAIT"):
        words.next()
    else:
        words.accept("NOWAIT")


def read_drop(words: Words) -> Statement:
    if words.accept("TEMPORARY"):
        return words.made(Kind.OTHER)
    if words.any_of("TABLE", "TABLES"):
        words.accept("IF", "EXISTS")
        tables = words.tables()
        _skip_waiting(words)
        words.any_of("RESTRICT", "CASCADE")
        return replace(words.made(_whole(words, Kind.DROP_TABLE)), tables=tables)
    if words.any_of("DATABASE", "SCHEMA"):
        words.accept("IF", "EXISTS")
        schema = words.name()
        return replace(words.made(_whole(words, Kind.DROP_DATABASE)), schema=schema)
    words.any_of("ONLINE", "OFFLINE")
    return _index(words) if words.accept("INDEX") else read_other(words)


def read_rename(words: Words) -> Statement:
    if not words.any_of("TABLE", "TABLES"):
        return words.made(Kind.OTHER if words.accept("USER") else Kind.UNKNOWN)
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
    made = words.made(_whole(words, Kind.RENAME_TABLE))
    return replace(made, tables=tables, renames=tuple(pairs))


def read_repair(words: Words) -> Statement:
    words.any_of("NO_WRITE_TO_BINLOG", "LOCAL")
    if not words.any_of("TABLE", "TABLES"):
        return words.made(Kind.OTHER if words.accept("VIEW") else Kind.UNKNOWN)
    return replace(words.made(Kind.ALTER_TABLE), tables=words.tables())


_OBJECTS = re.compile(
    "VIEW|TRIGGER|PROCEDURE|FUNCTION|EVENT|USER|ROLE|DATABASE|SCHEMA|SERVER|TABLESPACE|LOGFILE"
    "|SEQUENCE|PACKAGE|REFERENCE|RESOURCE|INSTANCE|LIBRARY"
)


def read_other(words: Words) -> Statement:
    """CREATE, ALTER or DROP of something that is no table: its kind comes after options such as
    a definer, and before any text of the user's own."""
    for token in words.rest():
        if _OBJECTS.fullmatch(token.upper):
            words.taken.append(token.upper)
            return words.made(Kind.OTHER)
    return words.made(Kind.UNKNOWN)


def _whole(words: Words, kind: Kind) -> Kind:
    """``kind``, if nothing is left that was not understood."""
    return Kind.UNKNOWN if words.rest() else kind
