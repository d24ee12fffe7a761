# ruff: noqa: S608  statements are made of constants and our own names
"""The demo's shop, traffic and comparison on MariaDB, each against a real server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from devtools.demo.compare import ComparedTable, compare, compare_table
from devtools.demo.databases.base import CannotRender, Size
from devtools.demo.databases.choose import count_rows, create_shop, of_kind, of_url, tables
from devtools.demo.databases.mariadb import MariadbShopServer
from devtools.demo.databases.mariadb_text import as_text
from devtools.demo.traffic import ShopTraffic
from devtools.services.binlog_server import BinlogServer
from tests.fixtures.mysql_servers import GRANTS, Flavour, MysqlDatabase
from tideline.contract.errors import Misconfigured
from tideline.contract.position import MysqlPosition, PostgresPosition
from tideline.settings import Warehouse

SMALL = Size(customers=500, products=60, orders=1_200, coupons=40)
MARIADB = of_kind("mariadb")


@pytest.fixture
def flavour() -> Flavour:
    return "mariadb"


@pytest.fixture
def shop(mysql_database: MysqlDatabase) -> MysqlDatabase:
    MARIADB.create_shop(mysql_database.url, SMALL)
    return mysql_database


# -- the shop ------------------------------------------------------------------------------------


def test_a_server_of_its_own_with_the_whole_shop(tmp_path: Path) -> None:
    server = MariadbShopServer(tmp_path)
    try:
        server.start()
        rows = create_shop(server.url())
        assert rows.keys() == set(tables(MARIADB)) and len(rows) >= 6
        assert rows["shop.orders"] >= 100_000
        assert rows["shop.returns"] == 0
        MARIADB.grant_capture(server.url(), "secret")
        connection = MARIADB.connect(server.url(user="tideline", password="secret"), "capture")
        with connection, connection.cursor() as cursor:
            cursor.execute("SHOW GRANTS")
            granted = {grant for (grant,) in cursor.fetchall()}
    finally:
        server.remove()
    documented = [one.format(user="", database="shop", watermarks="tideline") for one in GRANTS]
    assert {_plain(one) for one in granted} == {_plain(one) for one in documented}


def test_the_shop_has_what_makes_capture_hard(shop: MysqlDatabase) -> None:
    for what, where in {
        "customers": "email IS NULL",
        "customers AS c": "email = ''",
        "addresses": "valid_until = '0000-00-00'",
        "coupons": "grace < 0",
        "coupons AS c": "season = 0",
        "products": "digest LIKE '%\\0'",
        "order_items": "abs(discount) < 0.2 AND discount <> round(discount, 29)",
    }.items():
        assert shop.rows(f"SELECT count(*) FROM {what} WHERE {where}")[0][0] > 0, (what, where)


def test_kinds_and_urls_lead_to_their_database() -> None:
    assert of_url("mariadb://u@h/d") is MARIADB
    assert of_url("postgresql://u@h/d") is of_kind("postgres")
    with pytest.raises(Misconfigured, match="oracle"):
        of_kind("oracle")


# -- the traffic ---------------------------------------------------------------------------------


def test_traffic_keeps_its_average_rate_and_counts_what_the_log_holds(
    shop: MysqlDatabase,
) -> None:
    begin = MARIADB.log_end(shop.url)
    with _traffic(shop, rate=100.0) as traffic:
        _wait(lambda: traffic.report().seconds > 6)
        # A machine that stood still for a moment takes another one to catch up.
        _wait(lambda: traffic.report().rate > 85 and traffic.report().deletes > 100)
    report = traffic.report(finished=True)
    assert report.rolled_back > 0 and report.savepoints_undone > 0 and report.undone > 0
    assert report.changed_keys > 0
    assert min(report.inserts, report.updates, report.deletes) > 100
    assert len(report.tables) >= 6
    end = MARIADB.log_end(shop.url)
    assert isinstance(begin, MysqlPosition) and isinstance(end, MysqlPosition)
    assert MARIADB.reached(end, begin) and not MARIADB.reached(begin, end)
    assert not MARIADB.reached(PostgresPosition(end_lsn=1 << 60), end)
    assert _logged_rows(shop, begin, end) == {
        "insert": report.inserts,
        "update": report.updates,
        "delete": report.deletes,
    }


def test_traffic_begins_again_where_it_stopped(shop: MysqlDatabase) -> None:
    for _ in range(2):
        with _traffic(shop, rate=260.0) as traffic:
            _wait(lambda: traffic.report().transactions > 150)
    ((orders,),) = shop.rows("SELECT count(*) FROM orders")
    assert orders > 0


def test_an_error_of_one_lane_stops_all_and_is_told(shop: MysqlDatabase) -> None:
    traffic = ShopTraffic(shop.url, rate=260.0)
    traffic.start()
    shop.run("DROP TABLE coupons")
    with pytest.raises(Exception, match="coupons"):
        traffic.join()
    assert not traffic.working


def test_rows_are_counted_by_their_kind(mariadb: BinlogServer) -> None:
    with pytest.raises(Misconfigured):
        count_rows(mariadb.url().replace("mariadb:", "oracle:"))


# -- the comparison ------------------------------------------------------------------------------

EVERY_TYPE = """
CREATE TABLE kinds (
    id int PRIMARY KEY, words text, narrow varchar(20) CHARACTER SET latin1, exact decimal(12,4),
    huge decimal(65,30), small float, large double, yes boolean, raw varbinary(20), fixed binary(4),
    day date, at timestamp(6), local datetime(3), clock time(2), big bigint, most bigint unsigned,
    season year, choice enum('a', 'ö'), flags set('x', 'y'), ref uuid, doc json, place point
)
"""
EVERY_ROW = (
    "INSERT INTO kinds VALUES"
    "(1, '', 'größer', 1.5, 0.1, 1e6, 1e15, true, x'00ff', x'01', '2026-01-31',"
    " '2026-01-31 12:00:00', '2026-01-31 12:00:00.120', '-00:00:00.01', 9223372036854775807,"
    " 18446744073709551615, 0, 'ö', 'x,y', '823d59be-a4b5-463b-87f5-4aa5212ffa7d', '{\"a\" :1.50}',"
    " point(1, 2))",
    "INSERT INTO kinds VALUES"
    "(2, NULL, NULL, -0.0001, NULL, 0.1, 1e-5, false, '', x'00000000', '0044-03-15',"
    " '1970-01-01 00:00:01.999999', '0001-01-01 00:00:00', '838:59:59.99', -9223372036854775808, 0,"
    " 1901, NULL, '', NULL, NULL, NULL)",
    "INSERT INTO kinds (id, words, small, large, day) VALUES"
    " (3, 'NULL', 3.4028234e38, 5e-324, '0000-00-00'), (4, 'a\\nb\"c,d☕', -0e0,"
    " 1.7976931348623157e308, NULL)",
    "INSERT INTO kinds (id) SELECT seq FROM seq_10_to_2000",
)
ZERO_DAY = 3


@pytest.fixture
def kinds(mysql_database: MysqlDatabase, tmp_path: Path) -> tuple[MysqlDatabase, Path]:
    """A table of every rendered type and its equal in a warehouse, written by hand."""
    mysql_database.run(EVERY_TYPE, *EVERY_ROW)
    _write(mysql_database, tmp_path, _expected(mysql_database))
    return mysql_database, tmp_path


def test_equal_tables_are_equal(kinds: tuple[MysqlDatabase, Path]) -> None:
    found = _compared(kinds)
    assert found.first == () and found.differences == 0
    assert found.rows_equal == 1995


@pytest.mark.parametrize(
    ("assignment", "row", "what"),
    [
        ("words = NULL", 1, "NULL only in the source"),
        ("words = ''", 2, "NULL only in the warehouse"),
        ("words = 'null'", 3, "another value"),
        ("narrow = 'grösser'", 1, "another value"),
        ("exact = 1.5001", 1, "another value"),
        ("huge = 0.100000000000000000000000000001", 1, "another value"),
        ("small = 1000000.0625", 1, "another value"),
        ("large = 1.0000000000000002e-5", 2, "another value"),
        ("yes = 2", 1, "another value"),
        ("raw = x'00fe'", 1, "another value"),
        ("fixed = x'0001'", 1, "another value"),
        ("day = NULL", 3, "NULL only in the source"),
        ("day = '2026-01-01'", 3, "another value"),
        ("at = at + INTERVAL 1 MICROSECOND", 2, "another value"),
        ("local = local + INTERVAL 1000 MICROSECOND", 1, "another value"),
        ("clock = '00:00:00.01'", 1, "another value"),
        ("big = big - 1", 1, "another value"),
        ("most = most - 1", 1, "another value"),
        ("season = 2000", 1, "another value"),
        ("choice = 'a'", 1, "another value"),
        ("flags = 'x'", 1, "another value"),
        ("ref = '823d59be-a4b5-463b-87f5-4aa5212ffa7e'", 1, "another value"),
        ("doc = '{\"a\":1.50}'", 1, "another value"),
        ("place = point(2, 1)", 1, "another value"),
    ],
)
def test_one_value_that_differs_is_found(
    kinds: tuple[MysqlDatabase, Path], assignment: str, row: int, what: str
) -> None:
    database, _ = kinds
    database.run(f"UPDATE kinds SET {assignment} WHERE id = {row}")
    found = _compared(kinds)
    assert found.differences == 1 and found.rows_equal == 1994
    assert found.first[0].column == assignment.split()[0] and what in found.first[0].what


def test_rows_on_one_side_only_are_found(kinds: tuple[MysqlDatabase, Path]) -> None:
    database, _ = kinds
    database.run("INSERT INTO kinds (id) VALUES (5000)", "DELETE FROM kinds WHERE id = 2")
    assert {one.what for one in _compared(kinds).first} == {
        "is missing in the warehouse",
        "is only in the warehouse",
    }


def test_a_table_that_is_not_in_the_warehouse_is_a_difference(
    shop: MysqlDatabase, tmp_path: Path
) -> None:
    names = [name.replace("shop.", f"{shop.name}.") for name in tables(MARIADB)]
    result = compare(shop.url, Warehouse(url=tmp_path.as_uri()), names)
    assert result.differences == len(names) and result.rows_equal == 0


def test_keys_are_those_of_the_primary_key(shop: MysqlDatabase) -> None:
    assert MARIADB.read_table(shop.url, f"{shop.name}.order_items").key == ("order_id", "line")
    assert MARIADB.read_table(shop.url, f"{shop.name}.payments").key == ("id",)


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.bool_()])
def test_a_type_that_tideline_never_writes_here_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(CannotRender, match=str(kind).partition("[")[0]):
        as_text(pa.chunked_array([pa.array([None], kind)]))


# -- what the tests above use --------------------------------------------------------------------


@contextmanager
def _traffic(database: MysqlDatabase, *, rate: float) -> Iterator[ShopTraffic]:
    traffic = ShopTraffic(database.url, rate=rate)
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


def _plain(grant: str) -> str:
    """A grant's privileges and object, in one spelling."""
    head, _, _ = grant.partition(" TO ")
    privileges, _, target = head.removeprefix("GRANT ").partition(" ON ")
    # MariaDB's own name for the privilege.
    words = privileges.replace("BINLOG MONITOR", "REPLICATION CLIENT").split(", ")
    return f"{', '.join(sorted(words))} ON {target.replace('`', '')}"


def _logged_rows(
    database: MysqlDatabase, begin: MysqlPosition, end: MysqlPosition
) -> dict[str, int]:
    """Rows in the log between two positions, counted by another reader than ours.

    ChunkEvent that the server is a MariaDB, that reader would begin with the oldest log.
    """
    kinds = {WriteRowsEvent: "insert", UpdateRowsEvent: "update", DeleteRowsEvent: "delete"}
    counts = dict.fromkeys(kinds.values(), 0)
    server = database.server
    stream = BinLogStreamReader(
        connection_settings={
            "host": "127.0.0.1",
            "port": server.port,
            "user": "root",
            "password": server.password,
        },
        server_id=77,
        resume_stream=True,
        log_file=begin.file,
        log_pos=begin.offset,
        only_events=list(kinds),
        only_schemas=[database.name],
    )
    try:
        for event in stream:
            counts[kinds[type(event)]] += len(event.rows)
    finally:
        stream.close()
    assert (stream.log_file, stream.log_pos) >= (end.file, end.offset)
    return counts


def _expected(database: MysqlDatabase) -> pa.Table:
    """The rows of ``kinds`` as a warehouse must hold them, through Python values."""
    rows = database.rows(
        "SELECT id, words, narrow, exact, CAST(huge AS CHAR), small * 1E0, large, yes, raw, fixed,"
        " NULLIF(day, '0000-00-00'), at, local, CAST(clock AS CHAR), big, most, season, choice,"
        " flags, CAST(ref AS CHAR), doc, HEX(place) FROM kinds"
    )
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    columns[-1] = [None if value is None else bytes.fromhex(value) for value in columns[-1]]
    columns[15] = [None if value is None else Decimal(value) for value in columns[15]]
    fields: dict[str, pa.DataType] = {
        "id": pa.int32(),
        "words": pa.string(),
        "narrow": pa.string(),
        "exact": pa.decimal128(12, 4),
        "huge": pa.string(),
        "small": pa.float32(),
        "large": pa.float64(),
        "yes": pa.int8(),
        "raw": pa.binary(),
        "fixed": pa.binary(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "clock": pa.string(),
        "big": pa.int64(),
        "most": pa.decimal128(20, 0),
        "season": pa.int32(),
        "choice": pa.string(),
        "flags": pa.string(),
        "ref": pa.string(),
        "doc": pa.string(),
        "place": pa.binary(),
    }
    overflow = [[("day", "0000-00-00")] if key == ZERO_DAY else None for key in columns[0]]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, fields.values(), strict=True)]
    arrays.append(pa.array(overflow, pa.map_(pa.string(), pa.string())))
    arrays.append(pa.array([None] * len(rows), pa.list_(pa.string())))
    return pa.table(arrays, names=[*fields, "_tl_overflow", "_tl_pending"])


def _write(database: MysqlDatabase, folder: Path, table: pa.Table) -> None:
    deltalake.write_deltalake(
        str(folder / database.name / "kinds"), table, mode="overwrite", schema_mode="overwrite"
    )


def _compared(kinds: tuple[MysqlDatabase, Path]) -> ComparedTable:
    database, folder = kinds
    place = Warehouse(url=folder.as_uri())
    return compare_table(database.url, place, f"{database.name}.kinds")
