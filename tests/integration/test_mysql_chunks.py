"""Chunks read from real servers: every row once, whatever its key, width or lock."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from capture.core.events import Chunk, ChunkFailed, ChunkOrder, MarkKind
from capture.core.window import key_text
from capture.sources.mysql.chunks import RowChunkReader
from capture.sources.mysql.connect import SESSION, flavour
from capture.sources.mysql.names import quoted
from tests.fixtures.mysql_servers import MysqlDatabase
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.request import TimeRange
from tideline.contract.schema import TableId


class Marks:
    """Marks that are only remembered; the snapshot is a real one."""

    def __init__(self) -> None:
        self.written: list[tuple[MarkKind, str]] = []
        self.after_snapshot: tuple[str, ...] = ()
        self.database: MysqlDatabase | None = None

    def write(self, kind: MarkKind, token: str) -> None:
        self.written.append((kind, token))

    def begin(self, cursor: Any) -> None:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        if self.database is not None:
            self.database.run(*self.after_snapshot)
            self.database = None

    def close(self) -> None:
        self.written.clear()


@pytest.fixture
def reader(mysql_database: MysqlDatabase) -> Iterator[RowChunkReader]:
    made = make_reader(mysql_database)
    yield made
    made.close()


def make_reader(database: MysqlDatabase, *, lock_timeout_s: float = 1.0) -> RowChunkReader:
    connection = database.cdc_connect()
    with connection.cursor() as cursor:
        cursor.execute("SET " + ", ".join(f"SESSION {n} = {v}" for n, v in SESSION.items()))
    kind: Any = flavour(connection)
    return RowChunkReader(Marks(), connection, flavour=kind, lock_timeout_s=lock_timeout_s)


def order(database: MysqlDatabase, **fields: Any) -> ChunkOrder:
    values = {"rows_max": 3, "bytes_max": 1 << 20, **fields}
    return ChunkOrder("token", "r", str(TableId(database.name, "t")), **values)


def read(reader: RowChunkReader, database: MysqlDatabase, **fields: Any) -> Chunk:
    fetched = reader.fetch(order(database, **fields), lambda reason: None)
    assert not isinstance(fetched, ChunkFailed), fetched
    chunk, told = fetched.decode(), fetched.read
    assert (told.token, told.last_key, told.complete) == (
        chunk.token,
        chunk.last_key,
        chunk.complete,
    )
    assert chunk.facts.problem is None, chunk.facts.problem
    return chunk


def failed(reader: RowChunkReader, database: MysqlDatabase, **fields: Any) -> ChunkFailed:
    chunk = reader.fetch(order(database, **fields), lambda reason: None)
    assert isinstance(chunk, ChunkFailed)
    return chunk


def read_all(reader: RowChunkReader, database: MysqlDatabase, **fields: Any) -> list[Chunk]:
    chunks = [read(reader, database, **fields)]
    while not chunks[-1].complete:
        last = chunks[-1].last_key
        assert last is not None
        chunks.append(read(reader, database, after_key=last, **fields))
        assert len(chunks) < 1000
    return chunks


def values(chunks: list[Chunk], column: str) -> list[Any]:
    return [value for chunk in chunks for value in chunk.batch.column(column).to_pylist()]


@contextmanager
def other_session(database: MysqlDatabase, *statements: str) -> Iterator[None]:
    """A session that ran ``statements`` and stays."""
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        yield
        cursor.execute("UNLOCK TABLES")
        connection.rollback()


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


def fill(database: MysqlDatabase, definition: str) -> list[str]:
    """Make the table; its key columns."""
    columns, _, rows = definition.partition("|")
    lax = "SET sql_mode = ''"
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(lax)
        cursor.execute(f"CREATE TABLE t ({columns})")
        cursor.execute(f"INSERT IGNORE INTO t VALUES {rows}")  # noqa: S608
    return [row[4] for row in database.rows("SHOW INDEX FROM t WHERE Key_name = 'PRIMARY'")]


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


class TestWidth:
    def test_what_is_cut_off_comes_in_the_next_chunk(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        fill(mysql_database, f"id int PRIMARY KEY, v text|{wide_rows(40)}")
        chunks = read_all(reader, mysql_database, rows_max=20, bytes_max=5000)
        assert values(chunks, "id") == list(range(1, 41))
        assert {chunk.batch.num_rows for chunk in chunks[:-1]} == {5}

    def test_narrow_rows_after_wide_ones_fill_chunks_again(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        narrow = ", ".join(f"({n}, 'x')" for n in range(9, 201))
        fill(mysql_database, f"id int PRIMARY KEY, v text|{wide_rows(8, 5000)}, {narrow}")
        chunks = read_all(reader, mysql_database, rows_max=64, bytes_max=5000)
        assert values(chunks, "id") == list(range(1, 201))
        assert max(chunk.batch.num_rows for chunk in chunks) == 64

    def test_a_row_longer_than_the_limit_is_a_chunk_alone(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        fill(mysql_database, f"id int PRIMARY KEY, v text|{wide_rows(4, 60000)}")
        chunks = read_all(reader, mysql_database, rows_max=20, bytes_max=1000)
        assert [chunk.batch.num_rows for chunk in chunks if chunk.batch.num_rows] == [1] * 4
        assert values(chunks, "id") == [1, 2, 3, 4]

    def test_rows_of_more_packets_than_one(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        length = 0xFFFFFF - 6  # with what is before it, one packet to the last byte
        fill(mysql_database, "id int PRIMARY KEY, v longblob|(1, 'a'), (5, 'b')")
        with mysql_database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET GLOBAL max_allowed_packet = 1 << 30")
        for number, extra in enumerate((-1, 0, 1), start=2):
            mysql_database.run(f"INSERT INTO t VALUES ({number}, REPEAT(x'fe', {length + extra}))")  # noqa: S608
        (chunk,) = read_all(reader, mysql_database, rows_max=9, bytes_max=1 << 30)
        lengths = [len(value) for value in values([chunk], "v")]
        assert values([chunk], "id") == [1, 2, 3, 4, 5]
        assert lengths == [1, length - 1, length, length + 1, 1]
        assert {bytes(set(value)) for value in values([chunk], "v")[1:4]} == {b"\xfe"}
        chunks = read_all(reader, mysql_database, rows_max=9, bytes_max=10)
        assert values(chunks, "id") == [1, 2, 3, 4, 5]

    def test_given_keys_are_never_cut_off(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        fill(mysql_database, f"id int PRIMARY KEY, v text|{wide_rows(16)}")
        left = tuple((str(key),) for key in range(1, 18))
        found: list[int] = []
        missing: list[int] = []
        while left:
            chunk = read(reader, mysql_database, keys=left, bytes_max=3000)
            assert 0 < chunk.keys_read <= len(left) and chunk.missing is not None
            found += values([chunk], "id")
            missing += chunk.missing.column("id").to_pylist()
            left = left[chunk.keys_read :]
        assert (sorted(found), missing) == (list(range(1, 17)), [17])


def wide_rows(count: int, width: int = 1000) -> str:
    return ", ".join(f"({n}, REPEAT('x', {width}))" for n in range(1, count + 1))


ASKED: dict[str, tuple[str, list[Any], list[str], list[str]]] = {
    "int": ("k int PRIMARY KEY|(7), (8)", ["007", "8", "9"], ["7", "8"], ["9"]),
    "unsigned": (
        "k bigint unsigned PRIMARY KEY|(18446744073709551615)",
        ["18446744073709551615", "0"],
        ["18446744073709551615"],
        ["0"],
    ),
    "decimal": ("k decimal(9,2) PRIMARY KEY|(1.5)", ["1.5", "1.50", "-1"], ["1.50"], ["-1.00"]),
    "float": ("k float PRIMARY KEY|(3.3)", ["3.3", "3.4"], ["3.3"], ["3.4"]),
    "double": ("k double PRIMARY KEY|(3.3)", ["3.30", "1e-300"], ["3.3"], ["1e-300"]),
    "text": (
        "k varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY|('a'), ('it''s ä \\\\')",
        ["A", "it's ä \\", "b", "b"],
        ["a", "it's ä \\"],
        ["A", "b"],
    ),
    "latin1": (
        "k varchar(9) CHARACTER SET latin1 PRIMARY KEY|('é'), ('z')",
        ["é", "日本", "😀", "?"],
        ["é"],
        ["日本", "😀", "?"],
    ),
    "utf16": (
        "k varchar(9) CHARACTER SET utf16 PRIMARY KEY|('é'), ('😀')",
        ["é", "😀", "e"],
        ["é", "😀"],
        ["e"],
    ),
    "binary": (
        "k binary(3) PRIMARY KEY|(x'61'), (x'ff00ff')",
        [r"\x610000", r"\xff00ff", r"\x000000"],
        ["610000", "ff00ff"],
        ["000000"],
    ),
    "enum": (
        "k enum('b', 'a', 'c') CHARACTER SET latin1 PRIMARY KEY|('b'), ('a')",
        ["a", "b", "c", "日"],
        ["a", "b"],
        ["c", "日"],
    ),
    "set": ("k set('b', 'a') PRIMARY KEY|('b'), ('b,a')", ["b,a", "a"], ["b,a"], ["a"]),
    "bit": ("k bit(4) PRIMARY KEY|(5), (6)", ["0101", "110", "1"], ["0101", "0110"], ["0001"]),
    "year": ("k year PRIMARY KEY|(0), (2024)", ["0000", "2024", "2000"], ["0", "2024"], ["2000"]),
    "date": (
        "k date PRIMARY KEY|('2024-02-29')",
        ["2024-02-29", "2024-03-01"],
        ["2024-02-29"],
        ["2024-03-01"],
    ),
    "datetime": (
        "k datetime(6) PRIMARY KEY|('2024-02-29 10:00:00.000001')",
        ["2024-02-29 10:00:00.000001", "2024-02-29T10:00"],
        ["2024-02-29 10:00:00.000001"],
        ["2024-02-29 10:00:00.000000"],
    ),
    "timestamp": (
        "k timestamp PRIMARY KEY|('2024-02-29 10:00:00')",
        ["2024-02-29 12:00:00+02:00", "2024-02-29 10:00:01Z"],
        ["2024-02-29 10:00:00.000000Z"],
        ["2024-02-29 10:00:01.000000Z"],
    ),
    "time": (
        "k time(3) PRIMARY KEY|('-838:59:59'), ('1:2:3.5')",
        ["1:02:03.5", "-838:59:59", "0:00:00"],
        ["-838:59:59.000", "01:02:03.500"],
        ["00:00:00.000"],
    ),
    "two columns": (
        "k int, n varchar(3), PRIMARY KEY (k, n)|(1, 'a'), (1, 'b'), (2, 'a')",
        [("1", "a"), ("2", "a"), ("2", "b")],
        ["1", "2"],
        ["2"],
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_asked_for_keys_are_found_or_missing(
    mysql_database: MysqlDatabase, reader: RowChunkReader, name: str
) -> None:
    definition, asked, found, missing = ASKED[name]
    fill(mysql_database, definition)
    keys = tuple((key,) if isinstance(key, str) else key for key in asked)
    chunk = read(reader, mysql_database, keys=keys)
    assert chunk.missing is not None and chunk.complete
    assert sorted(key_text(chunk.batch, ["k"]).to_pylist()) == sorted(found)
    assert sorted(key_text(chunk.missing, ["k"]).to_pylist()) == sorted(missing)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("int", "hunter2"),
        ("int", "1 OR 1=1"),
        ("int", "99999999999"),
        ("decimal(5,2)", "1.234"),
        ("date", "yesterday"),
        ("datetime", "2024-01-01 00:00:00+02:00"),
        ("varbinary(9)", "hunter2"),
        ("bit(4)", "2"),
        ("time", "noon"),
        ("float", "nan"),
    ],
)
def test_a_key_of_another_type_ends_the_request_without_quoting_it(
    mysql_database: MysqlDatabase, reader: RowChunkReader, kind: str, key: str
) -> None:
    mysql_database.run(f"CREATE TABLE t (k {kind} PRIMARY KEY)")
    told = failed(reader, mysql_database, keys=((key,),))
    assert not told.retry and key not in told.error
    assert read(reader, mysql_database).complete


def test_many_keys_take_several_chunks(
    mysql_database: MysqlDatabase, reader: RowChunkReader
) -> None:
    fill(mysql_database, "k int PRIMARY KEY|" + ", ".join(f"({n})" for n in range(0, 3000, 2)))
    left = tuple((str(n),) for n in range(3000))
    found = missing = 0
    while left:
        chunk = read(reader, mysql_database, keys=left, rows_max=5000)
        assert chunk.missing is not None
        found, missing = found + chunk.batch.num_rows, missing + chunk.missing.num_rows
        left = left[chunk.keys_read :]
    assert (found, missing) == (1500, 1500)


class TestTime:
    @pytest.mark.parametrize(
        ("kind", "start", "end"),
        [
            ("datetime(3)", "2024-01-02", "2024-01-04T00:00:00Z"),
            ("timestamp", "2024-01-02T01:00:00+01:00", "2024-01-04"),
            ("date", "2024-01-02T00:00:00+00:00", "2024-01-04"),
        ],
    )
    def test_a_range_ends_before_its_end(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader, kind: str, start: str, end: str
    ) -> None:
        rows = ", ".join(f"({10 - day}, '2024-01-0{day}')" for day in range(1, 8))
        fill(mysql_database, f"k int PRIMARY KEY, at {kind}, KEY (at)|{rows}")
        wanted = TimeRange("at", start, end)
        chunks = read_all(reader, mysql_database, time=wanted, rows_max=1)
        assert values(chunks, "k") == [7, 8]

    def test_by_a_column_that_is_not_there(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        mysql_database.run("CREATE TABLE t (k int PRIMARY KEY)")
        told = failed(reader, mysql_database, time=TimeRange("at", "2024-01-01", "2024-01-02"))
        assert not told.retry and "'at'" in told.error


class TestFailures:
    @pytest.mark.parametrize(
        "statement", ["SELECT 1", "CREATE VIEW t AS SELECT 1 AS id"], ids=["nothing", "a view"]
    )
    def test_no_table_of_that_name(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader, statement: str
    ) -> None:
        mysql_database.run(statement)
        assert not failed(reader, mysql_database).retry

    def test_a_locked_table_is_tried_again(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        mysql_database.run("CREATE TABLE t (id int PRIMARY KEY)")
        waits: list[str | None] = []
        with other_session(mysql_database, "LOCK TABLES t WRITE"):
            told = reader.fetch(order(mysql_database), waits.append)
        assert isinstance(told, ChunkFailed) and told.retry and len(waits) == 1
        assert read(reader, mysql_database).complete

    def test_a_table_without_the_grant(self, mysql_database: MysqlDatabase) -> None:
        mysql_database.run("CREATE TABLE t (id int PRIMARY KEY)")
        account = f"'{mysql_database.cdc_user}'@'127.0.0.1'"
        mysql_database.run(f"REVOKE SELECT ON {mysql_database.name}.* FROM {account}")  # noqa: S608
        reader = make_reader(mysql_database)
        told = failed(reader, mysql_database)
        assert not told.retry and told.hint is not None
        mysql_database.run(told.hint)
        assert read(reader, mysql_database).complete
        reader.close()

    def test_a_killed_statement_is_tried_again_and_a_killed_connection_ends_the_session(
        self, mysql_database: MysqlDatabase
    ) -> None:
        fill(mysql_database, f"id int PRIMARY KEY, v text|{wide_rows(3)}")
        reader = make_reader(mysql_database, lock_timeout_s=30)
        for how, outcome in (("QUERY", True), ("CONNECTION", False)):
            with other_session(mysql_database, "LOCK TABLES t WRITE"):
                killer = threading.Thread(target=kill_waiting, args=(mysql_database, how))
                killer.start()
                if outcome:
                    assert failed(reader, mysql_database).retry
                else:
                    with pytest.raises(Unavailable):
                        reader.fetch(order(mysql_database), lambda reason: None)
                killer.join()
            if outcome:
                assert values([read(reader, mysql_database, rows_max=9)], "id") == [1, 2, 3]
        reader.close()

    def test_an_altered_table_is_read_as_it_is_now(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        fill(mysql_database, "k varchar(9) CHARACTER SET latin1 PRIMARY KEY|('a'), ('é'), ('z')")
        first = read(reader, mysql_database, rows_max=2)
        mysql_database.run("ALTER TABLE t MODIFY k varchar(9) CHARACTER SET utf8mb4")
        then = read(reader, mysql_database, rows_max=2, after_key=first.last_key)
        assert not then.complete and not then.batch.num_rows
        assert then.facts.key_definition != first.facts.key_definition
        mysql_database.run("ALTER TABLE t DROP PRIMARY KEY, ADD n int PRIMARY KEY AUTO_INCREMENT")
        then = read(reader, mysql_database, rows_max=2, after_key=first.last_key)
        assert not then.complete and not then.batch.num_rows

    def test_an_alter_between_snapshot_and_rows_is_tried_again(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        fill(mysql_database, "k int PRIMARY KEY|(1), (2)")
        marks = reader._marks
        assert isinstance(marks, Marks)
        marks.after_snapshot = ("TRUNCATE TABLE t", "INSERT INTO t VALUES (3)")
        marks.database = mysql_database
        told = reader.fetch(order(mysql_database), lambda reason: None)
        if isinstance(told, ChunkFailed):
            assert told.retry
        else:
            assert values([told.decode()], "k") == []
        assert values([read(reader, mysql_database)], "k") == [3]

    def test_a_table_that_cannot_be_captured_has_no_rows(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        fill(mysql_database, "k int|(1)")
        fetched = reader.fetch(order(mysql_database), lambda reason: None)
        assert not isinstance(fetched, ChunkFailed)
        chunk = fetched.decode()
        assert chunk.facts.problem == "it has no primary key" and not chunk.batch.num_rows


def kill_waiting(database: MysqlDatabase, how: str) -> None:
    """KILL the capture's session as soon as it waits for a lock."""
    mine = f"user = '{database.cdc_user}' AND state LIKE '%metadata lock%'"
    waits = f"SELECT id FROM information_schema.processlist WHERE {mine}"  # noqa: S608
    end = time.monotonic() + 20
    while not (found := database.rows(waits)):
        assert time.monotonic() < end
        time.sleep(0.02)
    database.run(f"KILL {how} {found[0][0]}")


@pytest.mark.parametrize("flavour", ["mysql8", "mysql9"])
def test_commits_out_of_the_logs_order_are_refused(
    mysql_database: MysqlDatabase, reader: RowChunkReader
) -> None:
    mysql_database.run("CREATE TABLE t (k int PRIMARY KEY)")
    mysql_database.run("SET GLOBAL binlog_order_commits = OFF")
    with pytest.raises(Misconfigured) as refused:
        reader.fetch(order(mysql_database), lambda reason: None)
    assert refused.value.hint is not None
    mysql_database.run(refused.value.hint)
    assert read(reader, mysql_database).complete


def test_marks_are_written_around_the_rows(
    mysql_database: MysqlDatabase, reader: RowChunkReader
) -> None:
    mysql_database.run("CREATE TABLE t (k int PRIMARY KEY)")
    read(reader, mysql_database)
    reader.write_high(order(mysql_database))
    assert isinstance(reader._marks, Marks)
    assert reader._marks.written == [(MarkKind.LOW, "token"), (MarkKind.HIGH, "token")]


def test_values_that_no_type_holds_are_kept_as_text(
    mysql_database: MysqlDatabase, reader: RowChunkReader
) -> None:
    fill(
        mysql_database,
        "k int PRIMARY KEY, d date, at datetime(3), f float, g double(9,2), w decimal(65,30),"
        " z decimal(60,30) zerofill, t time(6), b bit(12), e enum('x', 'é'), s set('a', 'b')"
        "|(1, '0000-00-00', '2004-00-10 11:12:13.5', 3.3, 3.3, 1.5, 1.5, '-00:00:00.000001', 5,"
        " 'é', 'b,a'),"
        " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),"
        " (3, '2024-02-29', '2024-02-29', -16777216, 0, 0, 0, '838:59:59', 4095, 0, '')",
    )
    first, second, third = read(reader, mysql_database).batch.to_pylist()
    assert first.pop("_tl_overflow") == [("d", "0000-00-00"), ("at", "2004-00-10 11:12:13.500")]
    assert first["d"] is first["at"] is None
    assert (first["f"], first["g"], first["b"]) == (3.299999952316284, 3.3, "000000000101")
    assert (first["w"], first["z"]) == ("1.5" + "0" * 29, "1.5" + "0" * 29)
    assert (first["t"], first["e"], first["s"]) == ("-00:00:00.000001", "é", "a,b")
    assert set(second.values()) == {2, None}
    assert (third["d"], third["f"]) == (datetime.date(2024, 2, 29), -16777216.0)
    assert (third["b"], third["e"], third["s"], third["z"]) == ("1" * 12, "", "", "0." + "0" * 30)
