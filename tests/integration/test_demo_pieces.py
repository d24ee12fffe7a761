"""The demo's shop, traffic and comparison, each against a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from devtools.demo.compare import ComparedTable, compare, compare_table
from devtools.demo.databases.base import CannotRender, Size
from devtools.demo.databases.choose import count_rows, create_shop, of_kind, tables
from devtools.demo.databases.postgres_text import as_text
from devtools.demo.traffic import DSN_VARIABLE, Report, ShopTraffic, read_report
from tests.fixtures.services import Database
from tideline.settings import Warehouse

TABLES = tables(of_kind("postgres"))
SMALL = Size(customers=500, products=60, orders=1_200, coupons=40)


@pytest.fixture
def shop(database: Database) -> Database:
    create_shop(database.dsn, SMALL)
    return database


# -- the shop ------------------------------------------------------------------------------------


def test_the_whole_shop_has_what_the_demo_promises(database: Database) -> None:
    rows = create_shop(database.dsn)
    assert len(rows) >= 6
    assert rows["public.orders"] >= 100_000
    assert rows["public.returns"] == 0
    ((plain,),) = database.rows(
        "SELECT count(*) FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    assert plain == len(TABLES) == len(rows)
    ((outside,),) = database.rows(
        "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'products'::regclass"
    )
    assert outside > 1_000_000, "manuals must lie out of line"


def test_the_shop_has_nulls_beside_empty_texts_and_a_date_no_warehouse_has(shop: Database) -> None:
    ((nulls, blanks),) = shop.rows(
        "SELECT count(*) FILTER (WHERE email IS NULL), count(*) FILTER (WHERE email = '')"
        " FROM customers"
    )
    ((infinite,),) = shop.rows("SELECT count(*) FROM addresses WHERE valid_until = 'infinity'")
    assert nulls and blanks and infinite


# -- the traffic ---------------------------------------------------------------------------------


def test_traffic_keeps_its_average_rate_and_counts_what_the_log_holds(shop: Database) -> None:
    shop.run("SELECT pg_create_logical_replication_slot('traffic_test', 'pgoutput')")
    shop.run("CREATE PUBLICATION traffic_test FOR ALL TABLES")
    with _traffic(shop, rate=100.0) as traffic:
        _wait(lambda: traffic.report().seconds > 6)
        # A machine that stood still for a moment takes another one to catch up.
        _wait(lambda: traffic.report().rate > 85 and traffic.report().deletes > 100)
    report = traffic.report(finished=True)
    assert report.rolled_back > 0 and report.savepoints_undone > 0 and report.undone > 0
    assert report.changed_keys > 0
    assert min(report.inserts, report.updates, report.deletes) > 100
    assert len(report.tables) >= 6
    assert _logged_changes(shop) == {
        b"I": report.inserts,
        b"U": report.updates,
        b"D": report.deletes,
        b"C": report.transactions - _empty_transactions(shop, report),
    }


def test_a_lane_that_fell_behind_catches_up(shop: Database) -> None:
    with _traffic(shop, rate=100.0) as traffic:
        connection = shop.connect()
        connection.autocommit = False
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
            cursor.execute("SELECT pg_sleep(1.5)")  # nothing of the traffic gets through
        connection.close()
        _wait(lambda: traffic.report().rate > 85)


def test_traffic_begins_again_where_it_stopped(shop: Database) -> None:
    for _ in range(2):
        with _traffic(shop, rate=260.0) as traffic:
            _wait(lambda: traffic.report().transactions > 150)
    assert count_rows(shop.dsn)["public.orders"] > 0


def test_an_error_of_one_lane_stops_all_and_is_told(shop: Database) -> None:
    traffic = ShopTraffic(shop.dsn, rate=260.0)
    traffic.start()
    shop.run("DROP TABLE coupons")
    with pytest.raises(Exception, match="coupons"):
        traffic.join()
    assert not traffic.working


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_stops_cleanly_and_its_last_report_is_final(
    shop: Database, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "report.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "devtools.demo.traffic", "--report", str(path)],
        env={**os.environ, DSN_VARIABLE: shop.dsn},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait(lambda: (report := read_report(path)) is not None and report.transactions > 100)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    report = read_report(path)
    assert process.returncode == 0, errors
    assert report is not None and report.finished
    # The server ends a session some time after its client.
    left = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'shop traffic%'"
    _wait(lambda: not shop.rows(left))


# -- the comparison ------------------------------------------------------------------------------

EVERY_TYPE = """
CREATE TABLE kinds (
    id integer PRIMARY KEY, words text, exact numeric(12,4), small real, large double precision,
    yes boolean, raw bytea, day date, at timestamptz, local timestamp, big bigint, fixed char(4)
)
"""
EVERY_ROW = (
    "INSERT INTO kinds VALUES"
    "(1, '', 1.5000, 1e6, 1e15, true, '\\x00ff', '2026-01-31', '2026-01-31 12:00:00+02',"
    " '2026-01-31 12:00:00.120000', 9223372036854775807, 'ab'),"
    "(2, NULL, 0.0001, 0.1, 1e-5, false, '', '0044-03-15', '1969-12-31 23:59:59.999999+00',"
    " '0001-01-01 00:00:00', -9223372036854775808, NULL),"
    "(3, 'NULL', NULL, 'NaN', '-Infinity', NULL, NULL, 'infinity', NULL, '9999-12-31 23:59:59', 0,"
    " '    '),"
    "(4, E'a\\nb\"c,d', -99999999.9999, 123456, 123456789012345, NULL, NULL, NULL, NULL, NULL, 1,"
    " 'abcd'),"
    "(5, '\\.', 0, 3.4028235e38, 5e-324, NULL, NULL, NULL, NULL, NULL, 2, ' x')"
)
INFINITE_DAY = 3


@pytest.fixture
def kinds(database: Database, tmp_path: Path) -> tuple[Database, Path]:
    """A table of every rendered type and its equal in a warehouse, written by hand."""
    database.run(EVERY_TYPE, EVERY_ROW)
    database.run("INSERT INTO kinds (id) SELECT generate_series(10, 2000)")
    _write(tmp_path, _expected(database))
    return database, tmp_path


def test_equal_tables_are_equal(kinds: tuple[Database, Path]) -> None:
    found = _compared(kinds)
    assert found.first == () and found.differences == 0
    assert found.rows_equal == 1996


@pytest.mark.parametrize(
    ("statement", "column", "what"),
    [
        ("UPDATE kinds SET words = NULL WHERE id = 1", "words", "NULL only in the source"),
        ("UPDATE kinds SET words = '' WHERE id = 2", "words", "NULL only in the warehouse"),
        ("UPDATE kinds SET words = 'null' WHERE id = 3", "words", "another value"),
        ("UPDATE kinds SET exact = 1.5001 WHERE id = 1", "exact", "another value"),
        ("UPDATE kinds SET small = 1000001 WHERE id = 1", "small", "another value"),
        ("UPDATE kinds SET large = 1.0000000000000002e-5 WHERE id = 2", "large", "another value"),
        ("UPDATE kinds SET large = 'Infinity' WHERE id = 3", "large", "another value"),
        ("UPDATE kinds SET yes = NULL WHERE id = 2", "yes", "NULL only in the source"),
        ("UPDATE kinds SET raw = '\\x00fe' WHERE id = 1", "raw", "another value"),
        ("UPDATE kinds SET day = '-infinity' WHERE id = 3", "day", "another value"),
        ("UPDATE kinds SET day = NULL WHERE id = 3", "day", "NULL only in the source"),
        ("UPDATE kinds SET at = at + '1 microsecond' WHERE id = 2", "at", "another value"),
        ("UPDATE kinds SET local = local + '1 second' WHERE id = 3", "local", "another value"),
        ("UPDATE kinds SET big = big - 1 WHERE id = 1", "big", "another value"),
        ("UPDATE kinds SET fixed = 'x' WHERE id = 5", "fixed", "another value"),
    ],
)
def test_one_value_that_differs_is_found(
    kinds: tuple[Database, Path], statement: str, column: str, what: str
) -> None:
    database, _ = kinds
    database.run(statement)
    found = _compared(kinds)
    assert found.differences == 1 and found.rows_equal == 1995
    assert found.first[0].column == column and what in found.first[0].what


def test_trailing_zeros_of_an_unbounded_numeric_matter(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE kinds (id int PRIMARY KEY, n numeric)")
    database.run("INSERT INTO kinds VALUES (1, 1.50), (2, 2)")
    _write(tmp_path, pa.table({"id": pa.array([1, 2], pa.int32()), "n": ["1.5", "2"]}))
    found = compare_table(database.dsn, place(tmp_path), "public.kinds")
    assert [str(one) for one in found.first] == ["public.kinds row 1 column n: has another value"]


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("INSERT INTO kinds (id) VALUES (5000)", "is missing in the warehouse"),
        ("DELETE FROM kinds WHERE id = 2", "is only in the warehouse"),
    ],
)
def test_rows_on_one_side_only_are_found(
    kinds: tuple[Database, Path], statement: str, what: str
) -> None:
    database, _ = kinds
    database.run(statement)
    found = _compared(kinds)
    assert found.differences == 1 and found.first[0].what == what


def test_a_row_that_is_there_twice_is_found(kinds: tuple[Database, Path]) -> None:
    database, folder = kinds
    table = _expected(database)
    _write(folder, pa.concat_tables([table, table.slice(7, 1)]))
    found = _compared(kinds)
    assert [one.what for one in found.first] == ["is in the warehouse more than once"]


def test_columns_on_one_side_only_are_found(kinds: tuple[Database, Path]) -> None:
    database, folder = kinds
    table = _expected(database).drop_columns(["words"]).append_column("more", pa.nulls(1996))
    _write(folder, table.set_column(table.num_columns - 1, "more", pa.array([None] * 1996, "int8")))
    assert {(one.column, one.what) for one in _compared(kinds).first} == {
        ("words", "is only in the source"),
        ("more", "is only in the warehouse"),
    }


def test_a_row_that_waits_for_a_value_is_not_equal(kinds: tuple[Database, Path]) -> None:
    database, folder = kinds
    table = _expected(database)
    pending: list[list[str] | None] = [None] * table.num_rows
    pending[3] = ["words"]
    at = table.schema.get_field_index("_tl_pending")
    column = pa.array(pending, pa.list_(pa.string()))
    _write(folder, table.set_column(at, "_tl_pending", column))
    assert [one.what for one in _compared(kinds).first] == ["still waits for a value"]


def test_only_the_first_differences_are_listed_and_all_are_counted(
    kinds: tuple[Database, Path],
) -> None:
    database, folder = kinds
    database.run("UPDATE kinds SET words = words || 'x', big = 7 WHERE id >= 10")
    result = compare(database.dsn, place(folder), ["public.kinds"])
    assert result.differences == 1991 and not result.equal
    lines = result.lines()
    assert lines[0] == "demo: FAILED, 1991 differences in 1 tables"
    assert len(lines) == 12 and lines[-1] == "  public.kinds: 1981 more"


def test_a_table_that_is_not_in_the_warehouse_is_a_difference(
    shop: Database, tmp_path: Path
) -> None:
    result = compare(shop.dsn, place(tmp_path), TABLES)
    assert result.differences == len(TABLES) and result.rows_equal == 0


def test_composite_keys_are_not_mixed_up(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE kinds (a text, b text, PRIMARY KEY (a, b))")
    database.run("INSERT INTO kinds VALUES ('x', 'y z'), ('x y', 'z')")
    _write(tmp_path, pa.table({"a": ["x", "x y z"], "b": ["y z", ""]}))
    found = compare_table(database.dsn, place(tmp_path), "public.kinds")
    assert sorted(one.what for one in found.first) == [
        "is missing in the warehouse",
        "is only in the warehouse",
    ]


def test_a_type_that_tideline_never_writes_is_refused_by_name() -> None:
    with pytest.raises(CannotRender, match="time64"):
        as_text(pa.chunked_array([pa.array([1], pa.time64("us"))]))


def test_ok_is_said_with_the_numbers(kinds: tuple[Database, Path]) -> None:
    database, folder = kinds
    result = compare(database.dsn, place(folder), ["public.kinds"])
    assert result.lines() == ["demo: ok, 1 tables, 1996 rows equal"]
    broken = replace(result, tables=(replace(result.tables[0], differences=1),))
    assert not broken.equal


# -- what the tests above use --------------------------------------------------------------------


@contextmanager
def _traffic(database: Database, *, rate: float) -> Iterator[ShopTraffic]:
    traffic = ShopTraffic(database.dsn, rate=rate)
    traffic.start()
    try:
        yield traffic
    finally:
        traffic.request_stop()
        traffic.join()


def _wait(ready: Callable[[], bool], *, timeout_s: float = 90.0) -> None:
    end = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def _logged_changes(database: Database) -> dict[bytes, int]:
    """Messages by kind in the slot, read with PostgreSQL's own decoder; C are commits."""
    rows = database.rows(
        "SELECT substr(data, 1, 1), count(*) FROM pg_logical_slot_peek_binary_changes("
        "'traffic_test', NULL, NULL, 'proto_version', '1', 'publication_names', 'traffic_test')"
        " WHERE substr(data, 1, 1) IN ('I', 'U', 'D', 'C') GROUP BY 1"
    )
    return {bytes(kind): count for kind, count in rows}


def _empty_transactions(database: Database, report: Report) -> int:
    """Committed transactions that changed nothing are not in the log at all."""
    logged = _logged_changes(database)[b"C"]
    assert 0 <= report.transactions - logged <= report.transactions // 20
    return report.transactions - logged


def _expected(database: Database) -> pa.Table:
    """The rows of ``kinds`` as a warehouse must hold them, through Python values."""
    rows = database.rows(
        "SELECT id, words, exact, small, large, yes, raw, CASE WHEN isfinite(day) THEN day END, at,"
        " local, big, CASE WHEN fixed IS NOT NULL THEN rpad(fixed::text, 4) END FROM kinds"
    )
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    columns[6] = [None if value is None else bytes(value) for value in columns[6]]
    fields: dict[str, pa.DataType] = {
        "id": pa.int32(),
        "words": pa.string(),
        "exact": pa.decimal128(12, 4),
        "small": pa.float32(),
        "large": pa.float64(),
        "yes": pa.bool_(),
        "raw": pa.binary(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "big": pa.int64(),
        "fixed": pa.string(),
    }
    overflow = [[("day", "infinity")] if key == INFINITE_DAY else None for key in columns[0]]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, fields.values(), strict=True)]
    arrays.append(pa.array(overflow, pa.map_(pa.string(), pa.string())))
    arrays.append(pa.array([None] * len(rows), pa.list_(pa.string())))
    return pa.table(arrays, names=[*fields, "_tl_overflow", "_tl_pending"])


def _write(folder: Path, table: pa.Table) -> None:
    deltalake.write_deltalake(
        str(folder / "public" / "kinds"), table, mode="overwrite", schema_mode="overwrite"
    )


def place(folder: Path) -> Warehouse:
    return Warehouse(url=folder.as_uri())


def _compared(kinds: tuple[Database, Path]) -> ComparedTable:
    database, folder = kinds
    return compare_table(database.dsn, place(folder), "public.kinds")
