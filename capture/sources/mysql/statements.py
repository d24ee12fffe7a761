"""What a QUERY event of the log is about, told from its text.

Schemas are never made from a statement: it only says that something happened, to which tables, and
whether rows that exist can have changed by it. Words are read up to where the matter is clear, and
what is not clearly one thing is `Kind.UNKNOWN`, at which the caller stops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from capture.sources.mysql.definitions import (
    read_alter,
    read_create,
    read_drop,
    read_rename,
    read_repair,
    read_truncate,
)
from capture.sources.mysql.sql_tokens import NotTokens, Shape, Token, tokens
from capture.sources.mysql.statement import Kind, Statement
from capture.sources.mysql.statement_words import NOTHING, Unclear, Words
from capture.sources.mysql.xid import Xid

__all__ = ["Kind", "Statement", "classify"]


_FREQUENT = {
    b"BEGIN": Statement(Kind.BEGIN, "BEGIN"),
    b"COMMIT": Statement(Kind.COMMIT, "COMMIT"),
    b"ROLLBACK": Statement(Kind.ROLLBACK, "ROLLBACK"),
}


def classify(
    text: bytes,
    *,
    default_schema: str,
    charset: str,
    ansi_quotes: bool = False,
    no_backslash_escapes: bool = False,
) -> Statement:
    """What the statement ``text``, in the client's ``charset``, does.

    ``default_schema`` is where tables without a schema are; the two switches are those of the
    statement's sql_mode. A text that cannot be read is `Kind.UNKNOWN`.
    """
    frequent = _FREQUENT.get(text)
    if frequent is not None:
        return frequent
    found = tokens(
        text, charset=charset, ansi_quotes=ansi_quotes, no_backslash_escapes=no_backslash_escapes
    )
    return _classify(found, default_schema)


def _classify(found: Iterator[Token], schema: str) -> Statement:
    everything = []
    try:
        for token in found:
            everything.append(token)
            if len(everything) == 1 and _DATA.fullmatch(token.upper):
                # The text may be long, and nothing in it makes a difference.
                break
    except NotTokens:
        statement = _read(everything, schema)
        # What is no table is told from the first words; user's texts come after them.
        is_told = everything and statement.kind is Kind.OTHER
        return statement if is_told else Statement(Kind.UNKNOWN, statement.words)
    statement = _read(everything, schema)
    certain = [token for token in everything if not token.conditional]
    if len(certain) == len(everything):
        return statement
    # On MySQL this is what was executed, if it is a statement at all.
    bare = _read(certain, schema)
    if not certain or bare.kind is Kind.UNKNOWN:
        return statement
    if bare.kind is not statement.kind:
        return Statement(Kind.UNKNOWN, statement.words)
    same = statement.steps == bare.steps
    return replace(
        statement,
        neutral=statement.neutral and bare.neutral,
        steps=statement.steps if same else None,
        converts=statement.converts or bare.converts,
        recodes=statement.recodes or bare.recodes,
    )


def _read(found: Sequence[Token], schema: str) -> Statement:
    if found and found[-1].upper == ";":
        found = found[:-1]
    if not found:
        return Statement(Kind.OTHER)
    words = Words(found, schema)
    first = found[0].upper
    if _DATA.fullmatch(first):
        return Statement(Kind.DML, first)
    if _NO_ROWS.fullmatch(first):
        return Statement(Kind.OTHER, first)
    reader = _READERS.get(first)
    if reader is None:
        return Statement(Kind.UNKNOWN, first if first.isalpha() else "")
    words.accept(first)
    try:
        return reader(words)
    except Unclear:
        return words.made(Kind.UNKNOWN)


def _begin(words: Words) -> Statement:
    words.any_of("WORK")
    return words.made(Kind.UNKNOWN if words.rest() else Kind.BEGIN)


def _start(words: Words) -> Statement:
    return words.made(Kind.BEGIN if words.accept("TRANSACTION") else Kind.UNKNOWN)


def _commit(words: Words) -> Statement:
    words.any_of("WORK")
    chained = words.any_of("AND", "RELEASE", "NO")
    return words.made(Kind.UNKNOWN if words.rest() and not chained else Kind.COMMIT)


def _rollback(words: Words) -> Statement:
    words.any_of("WORK")
    if words.accept("TO"):
        words.any_of("SAVEPOINT")
        return replace(words.made(Kind.ROLLBACK_TO), savepoint=words.name())
    chained = words.any_of("AND", "RELEASE", "NO")
    return words.made(Kind.UNKNOWN if words.rest() and not chained else Kind.ROLLBACK)


def _savepoint(words: Words) -> Statement:
    return words.made(Kind.SAVEPOINT)


def _release(words: Words) -> Statement:
    return words.made(Kind.SAVEPOINT if words.accept("SAVEPOINT") else Kind.UNKNOWN)


_XA = {
    "START": Kind.XA_START,
    "BEGIN": Kind.XA_START,
    "END": Kind.XA_END,
    "PREPARE": Kind.XA_PREPARE,
    "COMMIT": Kind.XA_COMMIT,
    "ROLLBACK": Kind.XA_ROLLBACK,
}


def _xa(words: Words) -> Statement:
    kind = _XA.get(words.any_of(*_XA))
    if kind is None:
        return words.made(Kind.UNKNOWN)
    gtrid = _xid_part(words)
    bqual = _xid_part(words) if words.accept(",") else b""
    format_id = words.name() if words.accept(",") else "1"
    if not format_id.isdecimal():
        raise Unclear
    xid = Xid(int(format_id), gtrid, bqual)
    one_phase = words.accept("ONE", "PHASE")
    return replace(words.made(kind), xid=xid, one_phase=one_phase)


def _xid_part(words: Words) -> bytes:
    """The servers write ``X'…'``; other forms are not in a log."""
    token = words.next()
    digits = words.next()
    if token.upper != "X" or digits.shape is not Shape.STRING:
        raise Unclear
    try:
        return bytes.fromhex(digits.text)
    except ValueError:
        raise Unclear from None


def _analyze(words: Words) -> Statement:
    """ANALYZE TABLE; MariaDB's ANALYZE of a statement executes it."""
    words.any_of("NO_WRITE_TO_BINLOG", "LOCAL")
    return words.made(Kind.OTHER if words.any_of("TABLE", "TABLES") else Kind.DML)


def _set(words: Words) -> Statement:
    """SET PASSWORD and SET DEFAULT ROLE; MariaDB's SET STATEMENT … FOR is what stands after it."""
    if words.accept("STATEMENT"):
        while not words.accept("FOR"):
            if words.next() is NOTHING:
                raise Unclear
        return _read(words.rest(), words.schema)
    known = words.accept("PASSWORD") or words.accept("DEFAULT", "ROLE")
    return words.made(Kind.OTHER if known else Kind.UNKNOWN)


_DATA = re.compile(
    r"\(|CALL|DELETE|DO|EXECUTE|HANDLER|INSERT|LOAD|REPLACE|SELECT|TABLE|UPDATE|VALUES|WITH"
)
_NO_ROWS = re.compile("GRANT|REVOKE|FLUSH|OPTIMIZE|CHECK|CHECKSUM|INSTALL|UNINSTALL")
_READERS: Mapping[str, Callable[[Words], Statement]] = {
    "BEGIN": _begin,
    "START": _start,
    "COMMIT": _commit,
    "ROLLBACK": _rollback,
    "SAVEPOINT": _savepoint,
    "RELEASE": _release,
    "XA": _xa,
    "TRUNCATE": read_truncate,
    "CREATE": read_create,
    "ALTER": read_alter,
    "DROP": read_drop,
    "RENAME": read_rename,
    "REPAIR": read_repair,
    "ANALYZE": _analyze,
    "SET": _set,
}
