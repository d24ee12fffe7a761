"""Chunks read from real servers: every row once, whatever its width or lock, and given keys."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fixtures.capture import PATIENCE_S
from tests.fixtures.mysql_chunks import (
    WatermarkWriter,
    failed,
    fill,
    make_reader,
    order,
    other_session,
    read,
    read_all,
    values,
)
from tests.fixtures.mysql_servers import Flavour, MysqlDatabase
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.request import TimeRange
from tideline_capture.core.chunks import ChunkFailed
from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.snapshots.window import key_text
from tideline_capture.sources.mysql.snapshot.chunks import RowChunkReader


@pytest.fixture
def reader(mysql_database: MysqlDatabase) -> Iterator[RowChunkReader]:
    made = make_reader(mysql_database)
    yield made
    made.close()


class TestWidth:
    def test_what_is_cut_off_comes_in_the_next_chunk(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        fill(mysql_database, f"id int PRIMARY KEY, v text|{wide_rows(40)}")
        chunks = read_all(reader, mysql_database, rows_max=20, bytes_max=5000)
        assert values(chunks, "id") == list(range(1, 41))
        assert chunks[0].batch.num_rows <= 5  # by the server's statistics, if it has any yet
        assert {chunk.batch.num_rows for chunk in chunks[1:-1]} == {5}

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
        with server_setting(mysql_database, "max_allowed_packet", "1 << 30"):
            for number, extra in enumerate((-1, 0, 1), start=2):
                value = f"REPEAT(x'fe', {length + extra})"
                mysql_database.run(f"INSERT INTO t VALUES ({number}, {value})")  # noqa: S608
        (chunk,) = read_all(reader, mysql_database, rows_max=9, bytes_max=1 << 30)
        lengths = [len(value) for value in values([chunk], "v")]
        assert values([chunk], "id") == [1, 2, 3, 4, 5]
        assert lengths == [1, length - 1, length, length + 1, 1]
        assert {bytes(set(value)) for value in values([chunk], "v")[1:4]} == {b"\xfe"}
        chunks = read_all(reader, mysql_database, rows_max=9, bytes_max=10)
        assert values(chunks, "id") == [1, 2, 3, 4, 5]

    def test_lengths_around_those_that_take_more_bytes(
        self, mysql_database: MysqlDatabase, reader: RowChunkReader
    ) -> None:
        """251 to 255 as a first byte mean something else than a length."""
        lengths = [*range(248, 260), 65_534, 65_535, 65_536, (1 << 24) - 20, 253, 0]
        fill(mysql_database, "id int PRIMARY KEY, v longtext, w longtext|(0, '', NULL)")
        for number, length in enumerate(lengths, start=1):
            row = f"{number}, REPEAT('v', {length}), REPEAT('w', {length})"
            mysql_database.run(f"INSERT INTO t VALUES ({row})")  # noqa: S608
        chunks = read_all(reader, mysql_database, rows_max=100, bytes_max=1 << 30)
        for column in "vw":
            found = values(chunks, column)[1:]
            assert [len(value) for value in found] == lengths
            assert {*"".join(found)} == {column}

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


@contextmanager
def server_setting(database: MysqlDatabase, name: str, value: str) -> Iterator[None]:
    """The whole server's setting, for as long as the context lasts."""
    ((before,),) = database.rows(f"SELECT @@GLOBAL.{name}")
    database.run(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        database.run(f"SET GLOBAL {name} = {before}")


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
    reported = failed(reader, mysql_database, keys=((key,),))
    assert not reported.retry and key not in reported.error
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
        reported = failed(reader, mysql_database, time=TimeRange("at", "2024-01-01", "2024-01-02"))
        assert not reported.retry and "'at'" in reported.error


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
            reported = reader.fetch(order(mysql_database), waits.append)
        assert isinstance(reported, ChunkFailed) and reported.retry and len(waits) == 1
        assert read(reader, mysql_database).complete

    def test_a_table_without_the_grant(self, mysql_database: MysqlDatabase) -> None:
        mysql_database.run("CREATE TABLE t (id int PRIMARY KEY)")
        account = f"'{mysql_database.cdc_user}'@'127.0.0.1'"
        mysql_database.run(f"REVOKE SELECT ON {mysql_database.name}.* FROM {account}")  # noqa: S608
        reader = make_reader(mysql_database)
        reported = failed(reader, mysql_database)
        assert not reported.retry and reported.hint is not None
        mysql_database.run(reported.hint)
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
        marks = reader._watermarks
        assert isinstance(marks, WatermarkWriter)
        marks.after_snapshot = ("TRUNCATE TABLE t", "INSERT INTO t VALUES (3)")
        marks.database = mysql_database
        reported = reader.fetch(order(mysql_database), lambda reason: None)
        if isinstance(reported, ChunkFailed):
            assert reported.retry
        else:
            assert values([reported.decode()], "k") == []
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
    end = time.monotonic() + PATIENCE_S
    while not (found := database.rows(waits)):
        assert time.monotonic() < end
        time.sleep(0.02)
    database.run(f"KILL {how} {found[0][0]}")


@pytest.mark.parametrize("flavour", ["mysql8", "mysql9"])
def test_commits_out_of_the_logs_order_are_refused(
    mysql_database: MysqlDatabase, reader: RowChunkReader
) -> None:
    mysql_database.run("CREATE TABLE t (k int PRIMARY KEY)")
    with server_setting(mysql_database, "binlog_order_commits", "OFF"):
        with pytest.raises(Misconfigured) as refused:
            reader.fetch(order(mysql_database), lambda reason: None)
        assert refused.value.hint is not None
        mysql_database.run(refused.value.hint)
        assert read(reader, mysql_database).complete


class TestPreparedTransactions:
    """The log has the commit of one before a read can see it: it is waited for."""

    PREPARED = ("XA START 'x'", "UPDATE t SET n = 2", "XA END 'x'", "XA PREPARE 'x'")

    def test_one_that_is_being_committed_is_waited_for(
        self,
        flavour: Flavour,
        mysql_database: MysqlDatabase,
        reader: RowChunkReader,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(
            "tideline_capture.sources.mysql.snapshot.prepared._COMMIT_S", PATIENCE_S
        )
        if flavour == "mysql9":
            grant(mysql_database, "GRANT", "TO")
        fill(mysql_database, "k int PRIMARY KEY, n int|(1, 1)")
        with other_session(mysql_database, *self.PREPARED) as session:
            commit = threading.Timer(0.5, run_on, (session, "XA COMMIT 'x'"))
            commit.start()
            assert values([read(reader, mysql_database)], "n") == [2]
            commit.join()

    @pytest.mark.parametrize("flavour", ["mysql8"])
    def test_where_it_cannot_be_seen_nothing_is_read_once_any_was_committed(
        self, flavour: Flavour, mysql_database: MysqlDatabase
    ) -> None:
        grant(mysql_database, "REVOKE", "FROM")
        fill(mysql_database, "k int PRIMARY KEY, n int|(1, 1)")
        reader = make_reader(mysql_database)
        with other_session(mysql_database, *self.PREPARED) as session:
            run_on(session, "XA COMMIT 'x'")
            reported = failed(reader, mysql_database)
        assert not reported.retry and reported.hint is not None
        mysql_database.run(reported.hint)
        assert values([read(reader, mysql_database)], "n") == [2]
        reader.close()


def grant(database: MysqlDatabase, verb: str, preposition: str) -> None:
    user = f"'{database.cdc_user}'@'127.0.0.1'"
    database.run(f"{verb} XA_RECOVER_ADMIN ON *.* {preposition} {user}")


def run_on(session: Any, statement: str) -> None:
    with session.cursor() as cursor:
        cursor.execute(statement)


def test_marks_are_written_around_the_rows(
    mysql_database: MysqlDatabase, reader: RowChunkReader
) -> None:
    mysql_database.run("CREATE TABLE t (k int PRIMARY KEY)")
    read(reader, mysql_database)
    reader.write_high(order(mysql_database))
    assert isinstance(reader._watermarks, WatermarkWriter)
    assert reader._watermarks.written == [
        (WatermarkKind.LOW, "token"),
        (WatermarkKind.HIGH, "token"),
    ]


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
