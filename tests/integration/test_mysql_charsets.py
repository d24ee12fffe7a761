"""Charsets against the servers: every collation, and every code of every set."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from devtools.services.binlog_server import BinlogServer
from tests.fixtures.mysql_binlog import recorded
from tests.fixtures.mysql_servers import MysqlDatabase
from tideline_capture.sources.mysql.types.charset_tables import CHAR_BYTES
from tideline_capture.sources.mysql.types.charsets import charset_of, decode_label, decode_texts

_SINGLE = [bytes([code]) for code in range(0x100)]
_PAIRS = [bytes([lead, trail]) for lead in range(0x80, 0x100) for trail in range(0x40, 0x100)]
_TRIPLES = [bytes([0x8F, lead, trail]) for lead in range(0xA1, 0xFF) for trail in range(0xA1, 0xFF)]
_BY_BYTES = sorted(set(CHAR_BYTES) - {"binary", "ucs2", "utf16", "utf16le", "utf32", "gb18030"})
_UNICODE = {
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gb18030": "gb18030",
}
_BYTES_PER_QUERY = 1024


def test_collations(mysql_server: BinlogServer) -> None:
    """Every id of the server, its charset and the width of its characters."""
    (version,) = mysql_server.rows("SELECT VERSION()")[0]
    query = "SELECT id, character_set_name FROM information_schema.collations"
    if "MariaDB" in version:
        query = (
            "SELECT id, character_set_name"
            " FROM information_schema.collation_character_set_applicability"
        )
    known = mysql_server.rows(query)
    widths = dict(
        mysql_server.rows(
            "SELECT character_set_name, maxlen FROM information_schema.character_sets"
        )
    )
    assert len(known) > 200
    for collation, charset in known:
        name = "utf8mb3" if charset == "utf8" else charset
        assert charset_of(collation) == (name, widths[charset]), collation
    assert {"utf8mb3" if name == "utf8" else name for name in widths} <= set(CHAR_BYTES)


@pytest.mark.parametrize("charset", _BY_BYTES)
def test_every_code(mysql_server: BinlogServer, charset: str) -> None:
    """Each code of one to three bytes: the server's character, or none here and there."""
    codes = [*_SINGLE]
    if CHAR_BYTES[charset] > 1:
        codes += _PAIRS
    if charset in ("ujis", "eucjpms"):
        codes += _TRIPLES
    converted = decode_texts(pa.array(codes, pa.binary()), charset)
    overflow = converted.overflow or pa.nulls(len(codes), pa.string())
    for code, printed, value, text in zip(
        codes,
        _printed(mysql_server, codes, charset),
        converted.values.to_pylist(),
        overflow.to_pylist(),
        strict=True,
    ):
        if printed is None:
            assert value is None and "\\x" in text, (charset, code.hex(), value)
        else:
            assert (value, text) == (printed, None), (charset, code.hex())


def test_every_character(mysql_server: BinlogServer) -> None:
    """Each character that a set can hold (of the planes that are all alike, some)."""
    known = {row[0] for row in mysql_server.rows("SHOW CHARACTER SET")}
    assert "gb18030" in known or "MariaDB" in mysql_server.rows("SELECT VERSION()")[0][0]
    for charset in sorted(_UNICODE):
        if charset not in known | {"utf8mb3"}:
            continue
        planes = 17 if charset == "gb18030" else 2 if CHAR_BYTES[charset] == 4 else 1
        texts = list(_texts(planes * 0x10000))
        stored = [text.encode(_UNICODE[charset]) for text in texts]
        if charset == "gb18030":
            swapped = str.maketrans("\u1e3f\ue7c7", "\ue7c7\u1e3f")
            texts = [text.translate(swapped) for text in texts]
        converted = decode_texts(pa.array(stored, pa.binary()), charset)
        assert converted.overflow is None
        assert converted.values.to_pylist() == texts
        assert list(_printed(mysql_server, stored, charset)) == texts


def test_labels_of_the_log(mysql_database: MysqlDatabase) -> None:
    """Labels come in the column's own set, and read as the server prints them."""
    sets = ["latin1", "utf8mb4", "utf16", "utf32", "sjis", "gbk", "koi8r", "ucs2", "swe7"]
    words = {
        "sjis": ("日本", "ｱ\\b"),
        "gbk": ("中文", "x"),
        "koi8r": ("Привет", "й"),
        "swe7": ("ÅÄ", "o"),
    }
    columns = []
    for name in sets:
        labels = ", ".join(f"'{one}'" for one in words.get(name, ("é", "ü")))
        columns.append(
            f"e_{name} ENUM({labels.replace(chr(92), chr(92) * 2)}) CHARACTER SET {name}"
        )
        columns.append(f"s_{name} SET({labels.replace(chr(92), chr(92) * 2)}) CHARACTER SET {name}")
    mysql_database.run(f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(columns)})")
    with recorded(mysql_database) as log:
        mysql_database.run("INSERT INTO t (id) VALUES (1)")
    table = log.one("t").table
    for name in sets:
        for column in table.columns:
            if column.name[2:] == name:
                assert column.charset == name
                assert column.labels == words.get(name, ("é", "ü"))


def test_stored_bytes_that_are_no_character(mysql_database: MysqlDatabase) -> None:
    """What a server takes in and cannot print keeps its bytes here."""
    stored = {"cp1256": "8A61", "tis620": "A1DB", "big5": "A2CC", "ucs2": "0061D83D"}
    for name, raw in stored.items():
        mysql_database.run(
            f"CREATE TABLE {name} (v VARCHAR(9) CHARACTER SET {name})",
            f"INSERT INTO {name} VALUES (0x{raw})",  # noqa: S608
        )
        ((kept,),) = mysql_database.rows(f"SELECT HEX(v) FROM {name}")  # noqa: S608
        assert kept == raw
        assert "\\x" in decode_label(bytes.fromhex(raw), name)


def _printed(server: BinlogServer, codes: list[bytes], charset: str) -> Iterator[str | None]:
    """What the server makes of each in UTF-8.

    None where that does not say which character it was: it prints ``?`` or U+FFFD for what has
    none. None as well for bytes that it does not take into a column of this set.
    """
    name = "utf8" if charset == "utf8mb3" else charset
    with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        size = max(1, _BYTES_PER_QUERY // len(codes[-1]))
        for at in range(0, len(codes), size):
            part = codes[at : at + size]
            taken = [f"CONVERT(0x{code.hex()} USING {name})" for code in part]
            cursor.execute(
                "SELECT " + ", ".join(f"HEX({one}), CONVERT({one} USING utf8mb4)" for one in taken)
            )
            row = cursor.fetchone()
            assert row is not None
            for code, stored, text in zip(part, row[::2], row[1::2], strict=True):
                yield text if stored == code.hex().upper() and _is_reported(code, text) else None


def _is_reported(code: bytes, text: str) -> bool:
    """Whether the server's ``text`` says which characters ``code`` has."""
    questions = text.count("?") - code.count(b"?")
    return text not in ("", "\ufffd") and (questions == 0 or len(text) > 2)


def _texts(end: int) -> Iterator[str]:
    """All characters below ``end``, 4,096 in a text."""
    for first in range(0, end, 4096):
        surrogates = range(0xD800, 0xE000)
        yield "".join(chr(one) for one in range(first, first + 4096) if one not in surrogates)
