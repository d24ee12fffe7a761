"""Classifies the statement of a QUERY event by its text.

Schemas are never made from a statement: it only says that something happened, to which tables, and
whether existing rows can have changed by it. Words are read up to where the matter is clear. A
statement that is not clearly one thing is `StatementKind.UNKNOWN`, at which the caller stops.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from tideline_capture.sources.mysql.binlog.xid import Xid
from tideline_capture.sources.mysql.ddl.definitions import (
    read_alter,
    read_create,
    read_drop,
    read_rename,
    read_repair,
    read_truncate,
)
from tideline_capture.sources.mysql.ddl.statement import DdlStatement, StatementKind
from tideline_capture.sources.mysql.ddl.tokens import (
    DdlWords,
    NotTokens,
    Token,
    TokenShape,
    Unclear,
    tokens,
)

_FREQUENT = {
    b"BEGIN": DdlStatement(StatementKind.BEGIN, "BEGIN"),
    b"COMMIT": DdlStatement(StatementKind.COMMIT, "COMMIT"),
    b"ROLLBACK": DdlStatement(StatementKind.ROLLBACK, "ROLLBACK"),
}


def classify(
    text: bytes,
    *,
    mariadb: bool,
    default_schema: str,
    charset: str,
    ansi_quotes: bool = False,
    no_backslash_escapes: bool = False,
) -> DdlStatement:
    """Return the effect of the statement ``text``, in the client's ``charset``.

    ``mariadb`` is whether the log is of a MariaDB; tables without a schema are in
    ``default_schema``; the two switches are those of the statement's sql_mode. An unreadable text
    is `StatementKind.UNKNOWN`.
    """
    frequent = _FREQUENT.get(text)
    if frequent is not None:
        return frequent
    found = tokens(
        text,
        mariadb=mariadb,
        charset=charset,
        ansi_quotes=ansi_quotes,
        no_backslash_escapes=no_backslash_escapes,
    )
    words = DdlWords(_without_end(found), default_schema)
    try:
        statement = _read(words)
        if statement.kind not in (StatementKind.OTHER, StatementKind.DML):
            # Statements about no table may hold the users' own texts, in any form.
            deque(words.rest(), maxlen=0)
    except (NotTokens, Unclear):
        return DdlStatement(StatementKind.UNKNOWN, words.keywords)
    return statement


def _without_end(found: Iterator[Token]) -> Iterator[Token]:
    """Yield the tokens, without a semicolon as the last one."""
    held = None
    for token in found:
        if held is not None:
            yield held
        held = token if token.upper == ";" else None
        if held is None:
            yield token


def _read(words: DdlWords) -> DdlStatement:
    _skip_settings(words)
    if not words:
        return DdlStatement(StatementKind.OTHER)
    first = words.peek().upper
    if _DATA.fullmatch(first):
        return DdlStatement(StatementKind.DML, first)
    if _NO_ROWS.fullmatch(first):
        return DdlStatement(StatementKind.OTHER, first)
    reader = _READERS.get(first)
    if reader is None:
        return DdlStatement(StatementKind.UNKNOWN, first if first.isalpha() else "")
    words.accept(first)
    return reader(words)


def _skip_settings(words: DdlWords) -> None:
    """Skip MariaDB's ``SET STATEMENT … FOR``, which applies to the statement after it."""
    while words.accept("SET", "STATEMENT"):
        words.skip_past("FOR")
        words.begin()


def _read_begin(words: DdlWords) -> DdlStatement:
    words.any_of("WORK")
    return DdlStatement(StatementKind.UNKNOWN if words else StatementKind.BEGIN, words.keywords)


def _read_start(words: DdlWords) -> DdlStatement:
    kind = StatementKind.BEGIN if words.accept("TRANSACTION") else StatementKind.UNKNOWN
    return DdlStatement(kind, words.keywords)


def _read_commit(words: DdlWords) -> DdlStatement:
    words.any_of("WORK")
    return DdlStatement(_unless_more(words, StatementKind.COMMIT), words.keywords)


def _read_rollback(words: DdlWords) -> DdlStatement:
    words.any_of("WORK")
    if words.accept("TO"):
        words.any_of("SAVEPOINT")
        return DdlStatement(StatementKind.ROLLBACK_TO, words.keywords, savepoint=words.name())
    return DdlStatement(_unless_more(words, StatementKind.ROLLBACK), words.keywords)


def _unless_more(words: DdlWords, kind: StatementKind) -> StatementKind:
    """Return ``kind`` if only the options of COMMIT and ROLLBACK are left."""
    chained = words.any_of("AND", "RELEASE", "NO")
    return StatementKind.UNKNOWN if words and not chained else kind


def _read_savepoint(words: DdlWords) -> DdlStatement:
    return DdlStatement(StatementKind.SAVEPOINT, words.keywords)


def _read_release(words: DdlWords) -> DdlStatement:
    kind = StatementKind.SAVEPOINT if words.accept("SAVEPOINT") else StatementKind.UNKNOWN
    return DdlStatement(kind, words.keywords)


_XA = {
    "START": StatementKind.XA_START,
    "BEGIN": StatementKind.XA_START,
    "END": StatementKind.XA_END,
    "PREPARE": StatementKind.XA_PREPARE,
    "COMMIT": StatementKind.XA_COMMIT,
    "ROLLBACK": StatementKind.XA_ROLLBACK,
}


def _read_xa(words: DdlWords) -> DdlStatement:
    kind = _XA.get(words.any_of(*_XA))
    if kind is None:
        return DdlStatement(StatementKind.UNKNOWN, words.keywords)
    gtrid = _read_xid_part(words)
    bqual = _read_xid_part(words) if words.accept(",") else b""
    format_id = words.name() if words.accept(",") else "1"
    if not format_id.isdecimal():
        raise Unclear
    xid = Xid(int(format_id), gtrid, bqual)
    one_phase = words.accept("ONE", "PHASE")
    return DdlStatement(kind, words.keywords, xid=xid, one_phase=one_phase)


def _read_xid_part(words: DdlWords) -> bytes:
    """Take a part as the servers write it, ``X'…'``; other forms are not in a log."""
    token = words.next()
    digits = words.next()
    if token.upper != "X" or digits.shape is not TokenShape.STRING:
        raise Unclear
    try:
        return bytes.fromhex(digits.text)
    except ValueError:
        raise Unclear from None


def _read_analyze(words: DdlWords) -> DdlStatement:
    """Read ANALYZE TABLE; MariaDB's ANALYZE of a statement executes it."""
    words.any_of("NO_WRITE_TO_BINLOG", "LOCAL")
    kind = StatementKind.OTHER if words.any_of("TABLE", "TABLES") else StatementKind.DML
    return DdlStatement(kind, words.keywords)


def _read_set(words: DdlWords) -> DdlStatement:
    """Read SET PASSWORD and SET DEFAULT ROLE."""
    known = words.accept("PASSWORD") or words.accept("DEFAULT", "ROLE")
    return DdlStatement(StatementKind.OTHER if known else StatementKind.UNKNOWN, words.keywords)


_DATA = re.compile(
    r"\(|CALL|DELETE|DO|EXECUTE|HANDLER|INSERT|LOAD|REPLACE|SELECT|TABLE|UPDATE|VALUES|WITH"
)
_NO_ROWS = re.compile("GRANT|REVOKE|FLUSH|OPTIMIZE|CHECK|CHECKSUM|INSTALL|UNINSTALL")
_READERS: Mapping[str, Callable[[DdlWords], DdlStatement]] = {
    "BEGIN": _read_begin,
    "START": _read_start,
    "COMMIT": _read_commit,
    "ROLLBACK": _read_rollback,
    "SAVEPOINT": _read_savepoint,
    "RELEASE": _read_release,
    "XA": _read_xa,
    "TRUNCATE": read_truncate,
    "CREATE": read_create,
    "ALTER": read_alter,
    "DROP": read_drop,
    "RENAME": read_rename,
    "REPAIR": read_repair,
    "ANALYZE": _read_analyze,
    "SET": _read_set,
}
