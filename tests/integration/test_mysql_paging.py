"""Paging by keys of every type and collation: every row once, in the database's own order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from capture.core.events import ChunkFailed
from capture.sources.mysql.chunks import RowChunkReader
from capture.sources.mysql.names import quoted
from tests.fixtures.mysql_chunks import fill, make_reader, order, read_all
from tests.fixtures.mysql_servers import MysqlDatabase


@pytest.fixture
def reader(mysql_database: MysqlDatabase) -> Iterator[RowChunkReader]:
    made = make_reader(mysql_database)
    yield made
    made.close()


def texts(charset: str) -> str:
    """Keys that collations have their own mind about: case, accents, blanks, controls, kana."""
    words = ["a", "B", "Ab", "aB2", "ä", "Z", "z!", "", " x", "x ", "x\t", "x\\0", "o", "ö", "Ö3"]
    if charset not in ("latin1", "ascii"):
        words += ["ß1", "ss2", "š", "ほ", "ポ1", "日本", "ﬀ", "é", "e\u0301"]
    if charset in ("utf8mb4", "utf16", "utf32"):
        words += ["😀", "😁x", "𝄞", "\U0010fffd"]
    words += [f"{word}{n}" for word in ("k", "K", "é", "~", "¡") for n in range(12)]
    return ", ".join(f"('{word}')" for word in words)


def text_key(kind: str, collation: str) -> str:
    charset = collation.partition("_")[0]
    return f"k {kind} CHARACTER SET {charset} COLLATE {collation} PRIMARY KEY|{texts(charset)}"


EVERYWHERE = {
    "bigint": "k bigint PRIMARY KEY|(-5), (0), (1), (7), (9223372036854775807)",
    "bigint unsigned": "k bigint unsigned PRIMARY KEY|(0), (7), (9223372036854775808),"
    " (18446744073709551614), (18446744073709551615)",
    "zerofill": "k int(8) zerofill PRIMARY KEY|(0), (1), (42), (4294967295)",
    "decimal": "k decimal(10,3) PRIMARY KEY|(-1.5), (0), (1.1), (1.101), (9999999.999)",
    "wide decimal": "k decimal(65,30) PRIMARY KEY|(-1.5), (0), (1e-30), (2e-30), (1e34)",
    "float": "k float PRIMARY KEY|(-1e30), (0.1), (3.3), (3.3000002), (16777216), (16777218)",
    "float(7,2)": "k float(7,2) PRIMARY KEY|(-1), (0.1), (3.3), (3.31), (99999.99), (12345.67)",
    "double": "k double PRIMARY KEY|(-1e300), (0.1), (0.30000000000000004), (0.3), (1e-300)",
    "double(10,2)": "k double(10,2) PRIMARY KEY|(-1), (0.1), (0.3), (0.31), (12345.67)",
    "date": "k date PRIMARY KEY|('2024-01-01'), ('1000-01-01'), ('9999-12-31'), ('2024-02-29')",
    "datetime(6)": "k datetime(6) PRIMARY KEY|('2024-01-01'), ('2024-01-01 00:00:00.000001'),"
    " ('2024-01-01 00:00:00.000002'), ('9999-12-31 23:59:59.999999'), ('1000-01-01')",
    "timestamp(3)": "k timestamp(3) PRIMARY KEY|('2024-01-01'), ('2024-01-01 00:00:00.001'),"
    " ('2038-01-19 03:14:07.999'), ('1970-01-01 00:00:01'), ('2024-03-31 02:30:00')",
    "time(6)": "k time(6) PRIMARY KEY|('-838:59:59'), ('-00:00:00.000001'), ('0'),"
    " ('00:00:00.000001'), ('838:59:59'), ('-00:00:01')",
    "year": "k year PRIMARY KEY|(0), (1901), (2000), (2001), (2155)",
    "bit(12)": "k bit(12) PRIMARY KEY|(0), (1), (2), (255), (256), (4095)",
    "bit(64)": "k bit(64) PRIMARY KEY|(0), (1), (18446744073709551615), (18446744073709551614),"
    " (9223372036854775808)",
    "binary": "k binary(3) PRIMARY KEY|(x'00'), (x'ff'), (x'610000'), (x'6161'), (x'27'), (x'5c')",
    "varbinary": "k varbinary(3) PRIMARY KEY"
    "|(x''), (x'00'), (x'0000'), (x'ff'), (x'61'), (x'6100')",
    "enum": "k enum('sad', 'ok', 'Happy', 'angry', '') PRIMARY KEY|(1), ('ok'), (3), (4), (5), (0)",
    "set": "k set('z', 'a', 'M', 'é') PRIMARY KEY|" + ", ".join(f"({n})" for n in range(16)),
    "set of 64": "k set(" + ", ".join(f"'v{n}'" for n in range(64)) + ") PRIMARY KEY"
    "|(18446744073709551615), (18446744073709551614), (9223372036854775809), (9223372036854775808),"
    " (0), (1), (2)",
    "three columns": "k varchar(3), b int, c date, PRIMARY KEY (c, k, b)|"
    + ", ".join(f"('{a}', {b}, '2024-01-0{c}')" for a in "xYz" for b in (1, 2) for c in (1, 2)),
    "enum first": "e enum('z', 'a', 'm'), k int, s set('b', 'a'), PRIMARY KEY (e, s, k)|"
    + ", ".join(f"({e}, {k}, {s})" for e in (1, 2, 3) for s in range(4) for k in (1, 2)),
    "text of two cases": "k varchar(5) COLLATE utf8mb4_general_ci, n int, PRIMARY KEY (k, n)|"
    + ", ".join(f"('{k}', {n})" for n, k in enumerate(["a", "A", "a ", "ä", "b", "B", "Á"] * 6)),
    "prefix": "k text, PRIMARY KEY (k(700))|"
    + ", ".join(f"(CONCAT(REPEAT('{c}', 650), '{n}'))" for c in "xY" for n in range(15)),
    "blob prefix": "k blob, PRIMARY KEY (k(2000))|"
    + ", ".join(f"(CONCAT(REPEAT('x', 1900), {n}))" for n in range(25)),
    "reserved words": "`select` int, `a``b` varchar(3), PRIMARY KEY (`select`, `a``b`)|"
    + ", ".join(f"({n % 3}, '{n}')" for n in range(12)),
    "latin1_swedish_ci": text_key("varchar(20)", "latin1_swedish_ci"),
    "latin1_general_cs": text_key("varchar(20)", "latin1_general_cs"),
    "utf8mb4_bin": text_key("varchar(20)", "utf8mb4_bin"),
    "utf8mb4_unicode_ci": text_key("varchar(20)", "utf8mb4_unicode_ci"),
    "utf8mb4_general_ci char": text_key("char(20)", "utf8mb4_general_ci"),
    "utf16_general_ci": text_key("varchar(20)", "utf16_general_ci"),
    "utf16_bin char": text_key("char(20)", "utf16_bin"),
    "utf32_unicode_ci": text_key("varchar(20)", "utf32_unicode_ci"),
    "ucs2_general_ci": text_key("varchar(20)", "ucs2_general_ci"),
    "utf16le_bin": text_key("varchar(20)", "utf16le_bin"),
    "sjis_japanese_ci": "k varchar(20) CHARACTER SET sjis PRIMARY KEY|"
    + ", ".join(f"('{word}')" for word in ("a", "ソ", "表", "ほ", "ポ", "\\\\", "日本", "ｱ")),
    "cp932": "k varchar(20) CHARACTER SET cp932 PRIMARY KEY|"
    "(_cp932 x'879a'), (_cp932 x'fa5b'), (_cp932 x'81e6'), ('a'), ('b'), ('~')",
}
ONLY = {
    "mariadb": {
        "uuid": "k uuid PRIMARY KEY|(uuid()), (uuid()), (uuid()),"
        " ('00000000-0000-0000-0000-000000000000'), ('ffffffff-ffff-1fff-bfff-ffffffffffff'),"
        " ('10000000-0000-4000-8000-000000000001'), ('00000000-0000-4000-8000-100000000000')",
        "inet6": "k inet6 PRIMARY KEY"
        "|('::'), ('::1'), ('fe80::1'), ('1:2:3::'), ('::ffff:1.2.3.4')",
        "inet4": "k inet4 PRIMARY KEY|('0.0.0.0'), ('10.0.0.0'), ('9.255.255.255'), ('255.0.0.1')",
        "utf8mb4_nopad_bin": text_key("varchar(20)", "utf8mb4_nopad_bin"),
        "utf8mb4_unicode_nopad_ci": text_key("varchar(20)", "utf8mb4_unicode_nopad_ci"),
        "uca1400": text_key("varchar(20)", "utf8mb4_uca1400_ai_ci"),
    },
    "mysql": {
        "utf8mb4_0900_ai_ci": text_key("varchar(20)", "utf8mb4_0900_ai_ci"),
        "utf8mb4_0900_ai_ci char": text_key("char(20)", "utf8mb4_0900_ai_ci"),
        "utf8mb4_0900_as_cs": text_key("varchar(20)", "utf8mb4_0900_as_cs"),
        "utf8mb4_ja_0900_as_cs": text_key("varchar(20)", "utf8mb4_ja_0900_as_cs"),
        "float -0": "k double, n int, PRIMARY KEY (k, n)|(-0e0, 1), (0e0, 2), (-0e0, 3), (0e0, 4)",
    },
}


def check_paging(database: MysqlDatabase, reader: RowChunkReader, definition: str) -> None:
    """Every row once, in the database's own order, however few rows a chunk has."""
    key = ", ".join(quoted(name) for name in fill(database, definition))
    count = len(database.rows(f"SELECT 1 FROM t ORDER BY {key}"))  # noqa: S608
    (whole,) = read_all(reader, database, rows_max=10_000)
    assert whole.batch.num_rows == count >= 3
    for rows_max in (1, 2, 3, 7):
        chunks = read_all(reader, database, rows_max=rows_max)
        rows = [row for chunk in chunks for row in chunk.batch.to_pylist()]
        assert rows == whole.batch.to_pylist(), rows_max
        assert {chunk.batch.num_rows for chunk in chunks[:-1]} <= {rows_max}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_paging_by_any_key_brings_every_row_once(
    mysql_database: MysqlDatabase, reader: RowChunkReader, name: str
) -> None:
    check_paging(mysql_database, reader, EVERYWHERE[name])


@pytest.mark.parametrize("family,name", [(f, name) for f in ONLY for name in ONLY[f]])
def test_paging_by_keys_that_one_server_has(
    mysql_database: MysqlDatabase, reader: RowChunkReader, family: str, name: str
) -> None:
    if mysql_database.flavour.startswith(family):
        check_paging(mysql_database, reader, ONLY[family][name])


@pytest.mark.parametrize("flavour", ["mariadb"])
@pytest.mark.parametrize(
    "collation", ["utf8mb4_nopad_bin", "utf8mb4_general_nopad_ci", "latin1_swedish_nopad_ci"]
)
def test_a_char_key_that_mariadb_cannot_page_by_is_refused_by_name(
    mysql_database: MysqlDatabase, reader: RowChunkReader, collation: str
) -> None:
    definition = text_key("char(20)", collation)
    fill(mysql_database, definition)
    told = reader.fetch(order(mysql_database), lambda reason: None)
    assert not isinstance(told, ChunkFailed)
    facts = told.decode().facts
    assert facts.problem is not None and facts.hint is not None
    assert facts.problem.endswith(f"skips rows: k ({collation})")
    assert len(pages(mysql_database, collation)) < len(mysql_database.rows("SELECT k FROM t"))
    mysql_database.run(facts.hint.partition(" -- ")[0])
    assert len(pages(mysql_database, collation)) == len(mysql_database.rows("SELECT k FROM t"))
    mysql_database.run("DROP TABLE t")
    check_paging(mysql_database, reader, definition.replace("char(", "varchar("))


def pages(database: MysqlDatabase, collation: str) -> list[str]:
    """The keys that plain SQL finds, each behind the one before it."""
    charset, found, behind = collation.partition("_")[0], list[str](), ""
    query = "SELECT HEX(k) FROM t FORCE INDEX (PRIMARY) {} ORDER BY k LIMIT 1"
    with database.connect() as connection, connection.cursor() as cursor:
        while cursor.execute(query.format(behind)):
            row = cursor.fetchone()
            assert row is not None
            found.append(row[0])
            behind = f"WHERE k > _{charset} X'{row[0]}'"
    return found
