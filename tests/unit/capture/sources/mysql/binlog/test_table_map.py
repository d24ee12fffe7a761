"""TABLE_MAP events as the servers wrote them, and as none should."""

from __future__ import annotations

import pytest

from tideline.contract.errors import CorruptData, InvariantBroken, Misconfigured
from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.binlog.table_map import (
    FULL_METADATA,
    parse_table_map,
    parse_table_name,
)
from tideline_capture.sources.mysql.types.columns import MysqlColumn, MysqlTable

_MARIADB, _MYSQL_80, _MYSQL_97 = "10.11.19-MariaDB-log", "8.0.15", "9.7.4"

# Recorded. d.t (a TINYINT UNSIGNED, y YEAR, b SMALLINT, c MEDIUMINT UNSIGNED NOT NULL PRIMARY KEY,
# d INT, e BIGINT UNSIGNED, f FLOAT UNSIGNED, g DOUBLE, h DECIMAL(65,30) UNSIGNED, i DECIMAL(12,2),
# z INT(5) ZEROFILL, bt BIT(13), b8 BIT(8))
_MARIADB_NUMBERS = bytes.fromhex(
    "32000000000001000164000174000d010d020903080405f6f60310100a0408411e0c0205010001f71f0102d6"
    "a0041c0161017901620163016401650166016701680169017a026274026238080103"
)
_MYSQL_80_NUMBERS = bytes.fromhex(
    "78000000000001000164000174000d010d020903080405f6f60310100a0408411e0c0205010001f71f0102ad"
    "40041c0161017901620163016401650166016701680169017a026274026238080103"
)
_MYSQL_97_NUMBERS = bytes.fromhex(
    "8e000000000001000164000174000d010d020903080405f6f60310100a0408411e0c0205010001f71f0102d6"
    "a0041c0161017901620163016401650166016701680169017a0262740262380801030c02fff8"
)
# d.t (a CHAR(3) CHARSET latin1, b CHAR(255) CHARSET utf8mb4, c CHAR(200) CHARSET utf8mb3,
# d BINARY(16), e VARCHAR(300) CHARSET gbk, f VARBINARY(70), g TINYTEXT CHARSET ucs2, h MEDIUMBLOB,
# i LONGTEXT CHARSET utf8mb4, g0 GEOMETRY, p POINT NOT NULL, v VARCHAR(10) CHARSET cp932,
# PRIMARY KEY (e(5), a))
_MARIADB_TEXTS = bytes.fromhex(
    "33000000000001000164000174000cfefefefe0f0ffcfcfcffff0f13fe03cefcde58fe105802460001030404"
    "041400ee0b030c082d213f1c3f233f2d3f3f5f07020001041901610162016301640165016601670168016902"
    "673001700176090404050000"
)
_MYSQL_80_TEXTS = bytes.fromhex(
    "79000000000001000164000174000cfefefefe0f0ffcfcfcffff0f13fe03cefcde58fe105802460001030404"
    "041400ee0b030e08fcff00213f1c3f233ffcff005f0702000104190161016201630164016501660167016801"
    "6902673001700176090404050000"
)
_MYSQL_97_TEXTS = bytes.fromhex(
    "8f000000000001000164000174000cfefefefe0f0ffcfcfcffff0f13fe03cefcde58fe105802460001030404"
    "041400ee0b030e08fcff00213f1c3f233ffcff005f0702000104190161016201630164016501660167016801"
    "69026730017001760904040500000c02fff0"
)
# d.t (id INT PRIMARY KEY, e ENUM('a','é','it''s') CHARSET latin1, s SET('x','ü') CHARSET utf16,
# b ENUM('q') CHARSET binary, t DATETIME(6), u TIMESTAMP(3) NULL, v TIME, w DATE, x DATETIME)
_MARIADB_LABELS = bytes.fromhex(
    "34000000000001000164000174000903fefefe1211130a120af701f801f70106030000fe0101010004130269"
    "64016501730162017401750176017701780b0308363f0507020200780200fc060d03016101e9046974277301"
    "0171080100"
)
_MYSQL_80_LABELS = bytes.fromhex(
    "7a000000000001000164000174000903fefefe1211130a120af701f801f70106030000fe0101010004130269"
    "64016501730162017401750176017701780b0308363f0507020200780200fc060d03016101e9046974277301"
    "0171080100"
)
_MYSQL_97_LABELS = bytes.fromhex(
    "90000000000001000164000174000903fefefe1211130a120af701f801f70106030000fe0101010004130269"
    "64016501730162017401750176017701780b0308363f0507020200780200fc060d03016101e9046974277301"
    "01710801000c02ff80"
)
# d.t (id INT, u UUID, i4 INET4, i6 INET6, b16 BINARY(16), b4 BINARY(4),
# v VARCHAR(10) CHARSET utf8mb4 COMPRESSED, t TEXT COMPRESSED, vb VARBINARY(300) COMPRESSED, j JSON,
# g POINT, l VARCHAR(5) CHARSET latin2, yy YEAR, n INT UNSIGNED)
_MARIADB_MARIADB_OWN = bytes.fromhex(
    "35000000000001000164000174000e03fefefefefe8d8c8dfcff0f0d0313fe10fe04fe10fe10fe042900022d"
    "0104040500ff3f01016002093f052d062d082e0a090701010424026964017502693402693603623136026234"
    "01760174027662016a0167016c027979016e"
)
# d.t (id INT UNSIGNED, j JSON, y YEAR, n INT UNSIGNED, h VARCHAR(10), KEY ((id+3))): 8.0.15 logs
# the index's hidden column.
_MYSQL_80_FUNCTIONAL = bytes.fromhex(
    "7b000000000001000164000174000603f50d030f03030428003f0101c00203fcff00042c026964016a017901"
    "6e0168203362623863313464343135313130616333623363353563653931303861653264"
)
# d.t (id INT UNSIGNED INVISIBLE, j JSON, y YEAR, n INT UNSIGNED, v VECTOR(3),
# h VARCHAR(10) CHARSET latin1, g POINT, KEY ((n+3)))
_MYSQL_97_MYSQL9_OWN = bytes.fromhex(
    "91000000000001000164000174000703f50d03f20fff0504040a00047f0101e003023f080701010d0103040f"
    "026964016a0179016e0176016801670c017e"
)
# d.t (a DATETIME(6)) of MariaDB with mysql56_temporal_format = OFF
_MARIADB_OLD_TIME = bytes.fromhex("0100000000000100016400017400010c000104020161")


def _types(table: MysqlTable) -> dict[str, str]:
    return {one.name: one.source_type for one in table.columns}


def _column(table: MysqlTable, name: str) -> MysqlColumn:
    (found,) = [one for one in table.columns if one.name == name]
    return found


@pytest.mark.parametrize(
    ("body", "server"),
    [
        (_MARIADB_NUMBERS, _MARIADB),
        (_MYSQL_80_NUMBERS, _MYSQL_80),
        (_MYSQL_97_NUMBERS, _MYSQL_97),
    ],
)
def test_numbers(body: bytes, server: str) -> None:
    """YEAR has a sign on MariaDB and since MySQL 8.0.23, and none before 8.0.21."""
    parsed = parse_table_map(body, server=server)
    assert parsed.flags == 1
    assert parsed.table_id == int.from_bytes(body[:6], "little") > 0
    assert parsed.table.table == parse_table_name(body) == TableId("d", "t")
    assert parsed.table.key == ("c",)
    assert _types(parsed.table) == {
        "a": "tinyint unsigned",
        "y": "year",
        "b": "smallint",
        "c": "mediumint unsigned",
        "d": "int",
        "e": "bigint unsigned",
        "f": "float unsigned",
        "g": "double",
        "h": "decimal(65,30) unsigned",
        "i": "decimal(12,2)",
        "z": "int unsigned",
        "bt": "bit(13)",
        "b8": "bit(8)",
    }
    assert [one.name for one in parsed.table.columns if not one.nullable] == ["c"]
    assert not _column(parsed.table, "y").unsigned


def test_a_year_of_another_server_is_misread() -> None:
    """What the server's version is for: the same bits, and other columns unsigned."""
    assert parse_table_map(_MYSQL_80_NUMBERS, server="8.0.20").table == (
        parse_table_map(_MYSQL_80_NUMBERS, server=_MYSQL_80).table
    )
    assert parse_table_map(_MYSQL_80_NUMBERS, server="8.0.23").table != (
        parse_table_map(_MYSQL_80_NUMBERS, server=_MYSQL_80).table
    )
    with pytest.raises(Misconfigured, match=r"8\.0\.22.*d\.t") as caught:
        parse_table_map(_MYSQL_80_NUMBERS, server="8.0.22")
    assert "8.0.23" in str(caught.value.hint)
    with pytest.raises(CorruptData, match="version"):
        parse_table_map(_MYSQL_80_NUMBERS, server="eight")
    with pytest.raises(InvariantBroken):
        parse_table_map(_MYSQL_80_NUMBERS, server="")


@pytest.mark.parametrize(
    ("body", "server"),
    [
        (_MARIADB_TEXTS, _MARIADB),
        (_MYSQL_80_TEXTS, _MYSQL_80),
        (_MYSQL_97_TEXTS, _MYSQL_97),
    ],
)
def test_texts_and_charsets(body: bytes, server: str) -> None:
    """GEOMETRY has a charset on MariaDB only; CHAR above 255 bytes hides bits in its type."""
    table = parse_table_map(body, server=server).table
    assert table.key == ("e", "a")
    assert {one.name: (one.source_type, one.charset, one.length) for one in table.columns} == {
        "a": ("char(3)", "latin1", 3),
        "b": ("char(255)", "utf8mb4", 1020),
        "c": ("char(200)", "utf8mb3", 600),
        "d": ("binary(16)", "binary", 16),
        "e": ("varchar(300)", "gbk", 600),
        "f": ("varbinary(70)", "binary", 70),
        "g": ("tinytext", "ucs2", 1),
        "h": ("mediumblob", "binary", 3),
        "i": ("longtext", "utf8mb4", 4),
        "g0": ("geometry", "", 4),
        "p": ("geometry", "", 4),
        "v": ("varchar(10)", "cp932", 20),
    }


@pytest.mark.parametrize(
    ("body", "server"),
    [
        (_MARIADB_LABELS, _MARIADB),
        (_MYSQL_80_LABELS, _MYSQL_80),
        (_MYSQL_97_LABELS, _MYSQL_97),
    ],
)
def test_labels_and_times(body: bytes, server: str) -> None:
    table = parse_table_map(body, server=server).table
    assert table.key == ("id",)
    assert _types(table) == {
        "id": "int",
        "e": "enum('a','é','it''s')",
        "s": "set('x','ü')",
        "b": "enum('q')",
        "t": "datetime(6)",
        "u": "timestamp(3)",
        "v": "time",
        "w": "date",
        "x": "datetime",
    }
    assert [_column(table, name).charset for name in "esb"] == ["latin1", "utf16", "binary"]
    assert _column(table, "e").labels == ("a", "é", "it's")


def test_types_of_mariadb() -> None:
    natives = {"u": "uuid", "i4": "inet4", "i6": "inet6", "b4": "uuid", "gone": "uuid"}
    table = parse_table_map(_MARIADB_MARIADB_OWN, server=_MARIADB, natives=natives).table
    assert table.key == ()
    assert _types(table) == {
        "id": "int",
        "u": "uuid",
        "i4": "inet4",
        "i6": "inet6",
        "b16": "binary(16)",
        "b4": "binary(4)",
        "v": "varchar(10) compressed",
        "t": "text compressed",
        "vb": "varbinary(300) compressed",
        "j": "longtext",
        "g": "geometry",
        "l": "varchar(5)",
        "yy": "year",
        "n": "int unsigned",
    }
    assert _column(table, "l").charset == "latin2"
    without = parse_table_map(_MARIADB_MARIADB_OWN, server=_MARIADB).table
    assert _types(without)["u"] == "binary(16)"


def test_types_of_mysql() -> None:
    """VECTOR has a charset on MySQL; an invisible column is one like any other."""
    assert _types(parse_table_map(_MYSQL_97_MYSQL9_OWN, server=_MYSQL_97).table) == {
        "id": "int unsigned",
        "j": "json",
        "y": "year",
        "n": "int unsigned",
        "v": "vector",
        "h": "varchar(10)",
        "g": "geometry",
    }
    hidden = parse_table_map(_MYSQL_80_FUNCTIONAL, server=_MYSQL_80).table
    assert [one.name for one in hidden.columns[:-1]] == ["id", "j", "y", "n", "h"]
    assert _types(hidden)["n"] == "int unsigned"
    assert _column(hidden, "j").charset == "utf8mb4"


def test_old_times_are_refused_by_name() -> None:
    with pytest.raises(Misconfigured, match=r"columns a of d\.t") as caught:
        parse_table_map(_MARIADB_OLD_TIME, server=_MARIADB)
    assert "ALTER TABLE `d`.`t` FORCE" in str(caught.value.hint)


def test_without_names_it_says_what_to_set() -> None:
    with pytest.raises(Misconfigured, match=r"no column names: d\.t") as caught:
        parse_table_map(_made(b"\x03", b"", b"\x00", (1, b"\x00")), server=_MYSQL_97)
    assert caught.value.hint == FULL_METADATA


_ID = (4, b"\x02id")


def _made(types: bytes, metadata: bytes, nullable: bytes, *fields: tuple[int, bytes]) -> bytes:
    """A TABLE_MAP of d.t."""
    head = bytes(6) + b"\x01\x00" + b"\x01d\x00" + b"\x01t\x00" + bytes([len(types)]) + types
    tail = b"".join(bytes([kind, len(value)]) + value for kind, value in fields)
    return head + bytes([len(metadata)]) + metadata + nullable + tail


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_made(b"\x0e", b"", b"\x00", _ID), "unknown column type 14"),
        (_made(b"\xfd", b"\x00\x00", b"\x00", _ID), "unknown column type 253"),
        (_made(b"\xfe", b"\x01\x00", b"\x00", _ID), "unknown string type 1"),
        (_made(b"\x0f", b"\x01", b"\x00", _ID), "ends early"),
        (_made(b"\x03", b"\x01", b"\x00", (1, b"\0"), _ID), "1 bytes too many: column metadata"),
        (_made(b"\x03", b"", b"\x00", (1, b"\0"), _ID, (14, b"")), "unknown optional field 14"),
        (_made(b"\x03", b"", b"\x00", (1, b"\0"), _ID, _ID), "field 4 is there twice"),
        (_made(b"\x03", b"", b"\x00", (1, b"\0"), (4, b"\x02")), "ends early"),
        (_made(b"\x03", b"", b"\x00", (1, b"\0"), (4, b"\x02id\x00")), "too many: column names"),
        (_made(b"\x03", b"", b"\x00", (1, b"\0"), (4, b"\x01\xff")), "not UTF-8"),
        (_made(b"\x03", b"", b"\x00", (1, b"\0\0"), _ID), "2 bytes of signs for 1 columns"),
        (_made(b"\x03", b"", b"\x00", _ID), "0 bytes of signs for 1 columns"),
        (_made(b"\x0f", b"\x10\0", b"\x00", _ID), "charsets"),
        (_made(b"\x0f", b"\x10\0", b"\x00", (2, b"\x08"), (3, b"\x08"), _ID), "charsets"),
        (_made(b"\x0f", b"\x10\0", b"\x00", (2, b"\x08\x01\x08"), _ID), "text column 1 of 1"),
        (_made(b"\x0f", b"\x10\0", b"\x00", (3, b"\x08\x08"), _ID), "too many: charsets"),
        (_made(b"\x0f", b"\x10\0", b"\x00", (3, b"\x11"), _ID), "unknown collation 17"),
        (_made(b"\xfe", b"\xf7\x01", b"\x00", _ID, (11, b"\x08")), "ends early.*labels"),
        (
            _made(b"\xfe", b"\xf7\x01", b"\x00", _ID, (11, b"\x08"), (6, b"\x01\x01a\x00")),
            "too many: labels",
        ),
        (_made(b"\x03", b"", b"\x00", (1, b"\0"), _ID, (8, b"\x01")), "beyond the 1 columns"),
        (_made(b"\x03", b"", b"\x00", (1, b"\0"), _ID, (8, b"\0"), (9, b"\0\0")), "two primary"),
        (_made(b"\x03", b"", b"\x00", (1, b"\0"), _ID, (9, b"\0")), "ends early.*primary key"),
        (_made(b"\x03", b"", b"\x00", (1, b"\0"), _ID) + b"\x08\x05", "ends early"),
        (_MYSQL_97_TEXTS[:30], "ends early"),
        (_MYSQL_97_TEXTS[:10] + b"x" + _MYSQL_97_TEXTS[11:], "NUL"),
    ],
)
def test_what_is_not_known_or_does_not_add_up(body: bytes, message: str) -> None:
    with pytest.raises(CorruptData, match=message):
        parse_table_map(body, server=_MYSQL_97)


def test_a_cut_body_never_passes() -> None:
    """Cut anywhere but between two optional fields, it raises."""
    for size in range(8, len(_MARIADB_MARIADB_OWN)):
        with pytest.raises((CorruptData, Misconfigured)):
            parse_table_map(_MARIADB_MARIADB_OWN[:size], server=_MARIADB)
