"""Preflight on real servers set wrong in each way: the fix is run, and the finding is gone."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Literal

import pytest

from devtools.services.binlog_server import BinlogServer
from tests.fixtures.capture import poll
from tests.fixtures.mysql_preflight import bad, check, make_shop, only, plan_of, statements
from tests.fixtures.mysql_servers import (
    Flavour,
    MysqlDatabase,
    ServerFactory,
    catch_up,
    follow,
    make_mysql_database,
    purge_logs,
)
from tideline.contract.errors import Misconfigured
from tideline.contract.position import MysqlPosition
from tideline_capture.sources.mysql.checks import facts as preflight_facts
from tideline_capture.sources.mysql.checks.preflight import require_settings, run_preflight
from tideline_capture.sources.mysql.connect import flavour as flavour_of

MARIADB_ONLY = pytest.mark.parametrize("flavour", ["mariadb"])
MYSQL_ONLY = pytest.mark.parametrize("flavour", ["mysql8", "mysql9"])


@pytest.fixture
def shop(mysql_database: MysqlDatabase) -> MysqlDatabase:
    return make_shop(mysql_database)


def test_a_good_source(shop: MysqlDatabase) -> None:
    """The user has exactly the grants that are documented."""
    findings = check(shop)
    assert bad(findings) == set()
    assert only(findings, "tables", "ok").message == "2 tables can be captured"
    assert "Maria" in only(findings, "version", "ok").message or shop.flavour != "mariadb"
    assert "5.5.5-" not in only(findings, "version", "ok").message
    with closing(shop.cdc_connect()) as connection:
        require_settings(connection, read_only=False)


def test_nothing_is_changed(shop: MysqlDatabase) -> None:
    """Not even the log grows."""

    def state() -> tuple[object, ...]:
        with closing(shop.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            logs = cursor.fetchall()
            cursor.execute("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES")
            return logs, set(cursor.fetchall())

    before = state()
    assert bad(check(shop, login=("root", shop.server.password))) == set()
    assert state() == before


@contextmanager
def globally(server: BinlogServer, name: str, value: str) -> Iterator[None]:
    """A global variable set for a while."""
    (before,) = [row[1] for row in server.rows(f"SHOW GLOBAL VARIABLES LIKE '{name}'")]
    server.run(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        plain = before.replace(".", "").isdecimal() or before in ("ON", "OFF")
        quoted = before if plain else f"'{before}'"
        server.run(f"SET GLOBAL {name} = {quoted}")


WRONG = [
    ("binlog_format", "STATEMENT"),
    ("binlog_format", "MIXED"),
    ("binlog_row_image", "MINIMAL"),
    ("binlog_row_image", "NOBLOB"),
    ("binlog_row_metadata", "MINIMAL"),
]
WRONG_OF_MYSQL = [("binlog_row_value_options", "'PARTIAL_JSON'"), ("binlog_order_commits", "OFF")]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_settings(name: str, value: str, shop: MysqlDatabase) -> None:
    check_setting(shop, name, value)


@MYSQL_ONLY
@pytest.mark.parametrize(("name", "value"), WRONG_OF_MYSQL)
def test_settings_of_mysql(name: str, value: str, shop: MysqlDatabase) -> None:
    check_setting(shop, name, value)


def check_setting(database: MysqlDatabase, name: str, value: str) -> None:
    """Found wrong, also by the check that every connection makes; right once the fix was run."""
    with globally(database.server, name, value):
        finding = only(check(database), name, "error")
        with closing(database.cdc_connect()) as connection:
            with pytest.raises(Misconfigured, match=f"^{name} is ") as refused:
                require_settings(connection, read_only=False)
            assert refused.value.hint == finding.fix
        database.run(*statements(finding))
        only(check(database), name, "ok")


def test_a_log_without_checksums(shop: MysqlDatabase) -> None:
    with globally(shop.server, "binlog_checksum", "NONE"):
        shop.run(*statements(only(check(shop), "binlog_checksum", "warning")))
        only(check(shop), "binlog_checksum", "ok")


@MARIADB_ONLY
def test_gtids_without_an_order(shop: MysqlDatabase) -> None:
    with globally(shop.server, "gtid_strict_mode", "OFF"):
        shop.run(*statements(only(check(shop), "gtid", "warning")))
        assert bad(check(shop)) == set()


@MARIADB_ONLY
def test_a_short_retention_of_mariadb(shop: MysqlDatabase) -> None:
    with globally(shop.server, "expire_logs_days", "0.5"):
        finding = only(check(shop), "retention", "warning")
        assert "for 12.0 hours" in finding.message
        shop.run(*statements(finding))
        assert "168 hours" in only(check(shop), "retention", "ok").message


@MYSQL_ONLY
def test_a_short_retention(shop: MysqlDatabase) -> None:
    with globally(shop.server, "binlog_expire_logs_seconds", "3600"):
        finding = only(check(shop), "retention", "warning")
        shop.run(*statements(finding))
        assert "168 hours" in only(check(shop), "retention", "ok").message
    with globally(shop.server, "binlog_expire_logs_seconds", "0"):
        assert "until someone" in only(check(shop), "retention", "ok").message


# -- settings that only a start sets, all on one server --------------------------------------------


def test_a_server_started_wrong(start_server: ServerFactory, flavour: Flavour) -> None:
    gtids = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
    wrong = {} if flavour == "mariadb" else gtids
    server = start_server(flavour, binlog_ignore_db="quiet", **wrong)
    server.run("CREATE DATABASE quiet", "CREATE TABLE quiet.t (id INT PRIMARY KEY)")
    database = make_mysql_database(server, flavour)
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    if flavour != "mariadb":
        check_without_gtids(database)
    check_prepared(database)
    check_purged(database)
    check_filters(database)
    server.restart({"skip_log_bin": "1"})
    only(check(database), "log_bin", "error")


def check_without_gtids(database: MysqlDatabase) -> None:
    """A warning with watermarks; without them there is nothing else to go by."""
    plan = plan_of(database)
    only(check(database, plan), "gtid", "warning")
    finding = only(check(database, dataclasses.replace(plan, watermarks=None)), "gtid", "error")
    database.run(*statements(finding))
    only(check(database, plan), "gtid", "ok")


def check_prepared(database: MysqlDatabase) -> None:
    """MySQL shows them to those who have the grant for it, as the old one's users do."""
    root = ("root", database.server.password)
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        for statement in ("XA START 'x'", "INSERT INTO orders VALUES (1)", "XA END 'x'"):
            cursor.execute(statement)
        cursor.execute("XA PREPARE 'x'")
    only(check(database, login=root), "prepared", "warning")
    shown = ("prepared", "warning") in bad(check(database))
    assert shown is (database.flavour != "mysql9")
    chained = dataclasses.replace(plan_of(database), chain=now(database))
    assert "prepared" not in {one.name for one in check(database, chained, root)}
    database.run("XA ROLLBACK 'x'")
    assert "prepared" not in {one.name for one in check(database, login=root)}


def check_purged(database: MysqlDatabase) -> None:
    """By GTID and by file; of another server's files nothing can be said."""
    database.run("INSERT INTO orders VALUES (2)")
    position, name = now(database)
    assert position.gtids
    by_file = MysqlPosition(position.file, position.offset)
    plan = dataclasses.replace(plan_of(database), chain=(position, name))
    plain = dataclasses.replace(plan, chain=(by_file, name))
    other = dataclasses.replace(plan, chain=(by_file, "another server"))
    only(check(database, plan), "position", "ok")
    only(check(database, plain), "position", "ok")
    only(check(database, other), "position", "warning")
    database.run("INSERT INTO orders VALUES (3)", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge_logs(database.server)
    assert "is lost" in only(check(database, plan), "position", "error").message
    assert "is lost" in only(check(database, plain), "position", "error").message


def check_filters(database: MysqlDatabase) -> None:
    root = ("root", database.server.password)
    plan = plan_of(database)
    only(check(database, plan, root), "filters", "ok")
    both = dataclasses.replace(plan, tables=("quiet.*", f"{database.name}.*"))
    finding = only(check(database, both, root), "filters", "error")
    assert "binlog_ignore_db keeps changes of databases out of the log: `quiet`" in finding.message
    database.server.restart({"binlog_do_db": database.name})
    finding = only(check(database, plan, root), "filters", "error")
    assert finding.message.endswith("out of the log: `tideline`")
    only(check(database, dataclasses.replace(plan, watermarks=None), root), "filters", "ok")


def now(database: MysqlDatabase) -> tuple[MysqlPosition, str]:
    """The end of the log, and the server's name for itself."""
    rows, mariadb = database.server.rows, database.flavour == "mariadb"
    status = "SHOW BINARY LOG STATUS" if database.flavour == "mysql9" else "SHOW MASTER STATUS"
    gtids = rows(f"SELECT @@GLOBAL.{'gtid_binlog_pos' if mariadb else 'gtid_executed'}")
    name = rows(f"SELECT @@GLOBAL.{'server_uid' if mariadb else 'server_uuid'}")
    file, offset = rows(status)[0][:2]
    return MysqlPosition(file, offset, gtids[0][0].replace("\n", "")), name[0][0]


def test_a_read_only_server(shop: MysqlDatabase) -> None:
    shop.run("CREATE TABLE IF NOT EXISTS tideline.x (a INT)", "DROP TABLE tideline.x")
    with globally(shop.server, "read_only", "ON"):
        finding = only(check(shop), "read_only", "error")
        assert finding.fix is not None
        assert "source.read_only = true" in finding.fix
        unmarked = dataclasses.replace(plan_of(shop), watermarks=None)
        assert bad(check(shop, unmarked)) == set()
        shop.run(*statements(finding))
        assert bad(check(shop)) == set()


def test_a_replica(start_server: ServerFactory, flavour: Flavour) -> None:
    """It must log what it applies, in the order of its source."""
    word = "replica" if flavour == "mysql9" else "slave"
    settings = {f"log_{word}_updates": "OFF"}
    if flavour != "mariadb":
        settings |= {f"{word}_parallel_workers": "4", f"{word}_preserve_commit_order": "OFF"}
    if flavour == "mysql8":
        settings["slave_parallel_type"] = "LOGICAL_CLOCK"
    primary, replica = start_server(flavour), start_server(flavour, **settings)
    database = make_mysql_database(primary, flavour)
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    behind = dataclasses.replace(database, server=replica)
    root = ("root", replica.password)
    assert "replica_log" not in {one.name for one in check(behind, login=root)}
    follow(replica, primary)
    catch_up(replica, primary)
    assert "is OFF" in only(check(behind), "replica_log", "error").message
    replica.restart({f"log_{word}_updates": "ON"})
    if flavour == "mariadb":
        poll("it replicates again", lambda: replicates(replica))
    catch_up(replica, primary)
    if flavour != "mariadb":
        replica.run(*statements(only(check(behind), "replica_order", "error")))
    only(check(behind), "replica", "ok")


def replicates(replica: BinlogServer) -> bool:
    ((_, running),) = replica.rows("SHOW GLOBAL STATUS LIKE 'Slaves\\_running'")
    return int(running) > 0


def test_the_other_server(shop: MysqlDatabase) -> None:
    other: Literal["mysql", "mariadb"] = "mysql" if shop.flavour == "mariadb" else "mariadb"
    plan = dataclasses.replace(plan_of(shop), flavour=other)
    assert only(check(shop, plan), "flavour", "error").fix is not None
    with closing(shop.connect()) as connection:
        assert flavour_of(connection) != other


def test_a_table_that_is_being_altered_counts_as_readable(shop: MysqlDatabase) -> None:
    with closing(shop.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES orders WRITE")
        assert bad(check(shop)) == set()


# -- tables ----------------------------------------------------------------------------------------


def test_patterns_that_match_nothing(shop: MysqlDatabase) -> None:
    plan = plan_of(shop)
    finding = only(
        check(shop, dataclasses.replace(plan, tables=("nosuch.*",))), "tables", "warning"
    )
    assert f"{shop.name}.items, {shop.name}.orders" in finding.message
    assert finding.fix is not None
    assert f"GRANT SELECT ON `nosuch`.* TO '{shop.cdc_user}'@'127.0.0.1';" in finding.fix
    half = check(shop, dataclasses.replace(plan, tables=(*plan.tables, "nosuch.*")))
    assert "nosuch.* matches no table" in only(half, "pattern", "warning").message
    with pytest.raises(Misconfigured, match="not a pattern"):
        check(shop, dataclasses.replace(plan, tables=("orders",)))


def test_tables_that_are_left_out(shop: MysqlDatabase) -> None:
    shop.run(
        "CREATE TABLE keyless (a INT)",
        "CREATE TABLE child (id INT PRIMARY KEY, o INT,"
        " FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)",
        "CREATE TABLE loose (id INT PRIMARY KEY) ENGINE = MyISAM",
        "CREATE TABLE Orders (id INT PRIMARY KEY)",
    )
    findings = check(shop)
    quarantined = {one.message.partition(" is left out")[0]: one for one in findings
              if one.name == "quarantined"}  # fmt: skip
    cascaded = {f"`{shop.name}`.`child`"} if shop.flavour != "mysql9" else set()
    assert set(quarantined) == {f"`{shop.name}`.`keyless`"} | cascaded
    assert "differ by case only" in only(findings, "table_case", "warning").message
    finding = only(findings, "engine", "warning")
    shop.run(*statements(finding))
    redump = check(shop, dataclasses.replace(plan_of(shop), cascades="redump"))
    assert len([one for one in redump if one.name == "quarantined"]) == 1
    assert ("cascades" in {one.name for one in redump}) is bool(cascaded)
    assert "engine" not in {one.name for one in redump}


def test_nothing_can_be_captured(mysql_database: MysqlDatabase) -> None:
    mysql_database.run("CREATE TABLE keyless (a INT)")
    only(check(mysql_database), "tables", "warning")


@MYSQL_ONLY
def test_a_server_with_another_history(shop: MysqlDatabase) -> None:
    position = MysqlPosition("binlog.000001", 4, f"{uuid.uuid4()}:1-5")
    plan = dataclasses.replace(plan_of(shop), chain=(position, "another server"))
    assert "another history" in only(check(shop, plan), "position", "error").message


def test_an_unencrypted_connection_from_afar(
    shop: MysqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test's server is on loopback: the check is told that it is elsewhere."""
    monkeypatch.setattr(preflight_facts, "stays_here", lambda _: False)
    with closing(shop.cdc_connect(ssl_disabled=True)) as connection:
        finding = only(run_preflight(connection, plan_of(shop)), "encryption", "warning")
    assert finding.fix is not None
