"""Preflight on real servers set wrong in each way: the fix is run, and the finding is gone."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Literal

import pytest

from capture.sources.finding import Finding
from capture.sources.mysql.connect import flavour as flavour_of
from capture.sources.mysql.preflight import Plan, require_settings, run_preflight
from capture.sources.mysql.watermarks import watermark_table
from console.services.binlog_server import BinlogServer
from tests.fixtures.mysql_servers import (
    Flavour,
    MysqlDatabase,
    ServerFactory,
    catch_up,
    follow,
    make_mysql_database,
)
from tideline.contract.errors import Misconfigured
from tideline.contract.position import MysqlPosition
from tideline.contract.schema import TableId

MARIADB_ONLY = pytest.mark.parametrize("flavour", ["mariadb"])
MYSQL_ONLY = pytest.mark.parametrize("flavour", ["mysql8", "mysql9"])
PASSWORD = "canary-77aa"


@pytest.fixture
def shop(mysql_database: MysqlDatabase) -> MysqlDatabase:
    """Two good tables; nothing else."""
    mysql_database.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)",
        "CREATE TABLE items (id INT, line INT, PRIMARY KEY (id, line))",
    )
    return mysql_database


def plan_of(database: MysqlDatabase) -> Plan:
    return Plan(
        flavour="mariadb" if database.flavour == "mariadb" else "mysql",
        tables=(f"{database.name}.*",),
        exclude=(),
        marks=watermark_table("tideline"),
    )


def check(
    database: MysqlDatabase,
    plan: Plan | None = None,
    login: tuple[str, str] | None = None,
) -> list[Finding]:
    """Findings for the user with exactly the documented grants, or for ``login``."""
    user, password = login or (database.cdc_user, database.cdc_password)
    with closing(database.server.connect(user=user, password=password)) as connection:
        return run_preflight(connection, plan or plan_of(database))


def only(findings: Sequence[Finding], name: str, level: str) -> Finding:
    found = [finding for finding in findings if finding.name == name]
    assert [one.level for one in found] == [level], found
    return found[0]


def bad(findings: Sequence[Finding]) -> set[tuple[str, str]]:
    return {(one.name, one.level) for one in findings if one.level != "ok"}


def statements(finding: Finding) -> list[str]:
    """The fix as it would be pasted into a client, without its remarks."""
    assert finding.fix is not None
    lines = finding.fix.partition(" --")[0]
    return [one.strip() for one in lines.split(";") if one.strip()]


DEFAULTS: dict[Flavour, set[tuple[str, str]]] = {
    "mariadb": set(),
    "mysql8": set(),
    "mysql9": set(),
}


def test_a_good_source(shop: MysqlDatabase) -> None:
    """The user has exactly the grants that are documented."""
    findings = check(shop)
    assert bad(findings) == DEFAULTS[shop.flavour]
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
        assert "until somebody" in only(check(shop), "retention", "ok").message


@MYSQL_ONLY
def test_no_gtids(start_server: ServerFactory, flavour: Flavour) -> None:
    """A warning with watermarks; without them there is nothing else to go by."""
    server = start_server(flavour, gtid_mode="OFF", enforce_gtid_consistency="OFF")
    database = make_mysql_database(server, flavour)
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    plan = plan_of(database)
    only(check(database, plan), "gtid", "warning")
    finding = only(check(database, dataclasses.replace(plan, marks=None)), "gtid", "error")
    database.run(*statements(finding))
    only(check(database, plan), "gtid", "ok")


def test_no_log(start_server: ServerFactory, flavour: Flavour) -> None:
    word = "skip_log_bin"
    extra = {} if flavour == "mariadb" else {"log_replica_updates": "OFF"}
    server = start_server(flavour, **{word: "1"}, **(extra if flavour == "mysql9" else {}))
    database = make_mysql_database(server, flavour)
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    assert "log_bin" in {name for name, level in bad(check(database)) if level == "error"}


def test_filters(start_server: ServerFactory, flavour: Flavour) -> None:
    server = start_server(flavour, binlog_ignore_db="quiet")
    server.run("CREATE DATABASE quiet", "CREATE TABLE quiet.t (id INT PRIMARY KEY)")
    database = make_mysql_database(server, flavour)
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    login = ("root", server.password)
    plan = plan_of(database)
    only(check(database, plan, login), "filters", "ok")
    both = dataclasses.replace(plan, tables=("quiet.*", f"{database.name}.*"))
    finding = only(check(database, both, login), "filters", "error")
    assert "binlog_ignore_db keeps changes of databases out of the log: `quiet`" in finding.message
    server.restart({"binlog_do_db": database.name})
    finding = only(check(database, plan, login), "filters", "error")
    assert finding.message.endswith("out of the log: `tideline`")
    unmarked = dataclasses.replace(plan, marks=None)
    only(check(database, unmarked, login), "filters", "ok")


def test_a_read_only_server(shop: MysqlDatabase) -> None:
    shop.run("CREATE TABLE IF NOT EXISTS tideline.x (a INT)", "DROP TABLE tideline.x")
    with globally(shop.server, "read_only", "ON"):
        finding = only(check(shop), "read_only", "error")
        assert finding.fix is not None
        assert "source.read_only = true" in finding.fix
        unmarked = dataclasses.replace(plan_of(shop), marks=None)
        assert bad(check(shop, unmarked)) == set()
        shop.run(*statements(finding))
        assert bad(check(shop)) == set()


@MYSQL_ONLY
def test_a_replica(start_server: ServerFactory, flavour: Flavour) -> None:
    word = "replica" if flavour == "mysql9" else "slave"
    primary = start_server(flavour)
    replica = start_server(
        flavour,
        **{
            f"{word}_parallel_workers": "4",
            f"{word}_preserve_commit_order": "OFF",
            f"{word}_parallel_type" if word == "slave" else "skip_name_resolve": (
                "LOGICAL_CLOCK" if word == "slave" else "ON"
            ),
        },
    )
    follow(replica, primary)
    database = make_mysql_database(primary, flavour)
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    catch_up(replica, primary)
    behind = dataclasses.replace(database, server=replica)
    finding = only(check(behind), "replica_order", "error")
    replica.run(*statements(finding))
    only(check(behind), "replica", "ok")


def test_a_replica_that_keeps_no_log(start_server: ServerFactory, flavour: Flavour) -> None:
    word = "log_replica_updates" if flavour == "mysql9" else "log_slave_updates"
    primary, replica = start_server(flavour), start_server(flavour, **{word: "OFF"})
    database = make_mysql_database(replica, flavour)
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    if flavour != "mariadb":
        replica.run("RESET BINARY LOGS AND GTIDS" if flavour == "mysql9" else "RESET MASTER")
    assert "replica_log" not in {name for name, _ in bad(check(database))}
    follow(replica, primary)
    catch_up(replica, primary)
    assert "is OFF" in only(check(database), "replica_log", "error").message


def test_the_other_server(shop: MysqlDatabase) -> None:
    other: Literal["mysql", "mariadb"] = "mysql" if shop.flavour == "mariadb" else "mariadb"
    plan = dataclasses.replace(plan_of(shop), flavour=other)
    assert only(check(shop, plan), "flavour", "error").fix is not None
    with closing(shop.connect()) as connection:
        assert flavour_of(connection) != other


# -- grants ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Login:
    """A user without any grant, and the schema of marks that it is to use."""

    database: MysqlDatabase
    name: str
    marks: str

    @property
    def sql(self) -> str:
        return f"'{self.name}'@'127.0.0.1'"

    def grant(self, *grants: str) -> None:
        self.database.run(*(f"GRANT {grant} TO {self.sql}" for grant in grants))

    def check(self, *, marks: bool = True) -> list[Finding]:
        plan = plan_of(self.database)
        table = TableId(self.marks, "watermark") if marks else None
        return check(self.database, dataclasses.replace(plan, marks=table), (self.name, PASSWORD))


@pytest.fixture
def login(shop: MysqlDatabase) -> Iterator[Login]:
    tag = uuid.uuid4().hex[:8]
    user = Login(shop, f"user_{tag}", f"marks_{tag}")
    shop.run(f"CREATE USER {user.sql} IDENTIFIED BY '{PASSWORD}'")
    yield user
    shop.run(f"DROP USER {user.sql}", f"DROP DATABASE IF EXISTS {user.marks}")


def documented(login: Login) -> dict[str, str]:
    """The grants of docs/GRANTS.md, and the finding that names one that is missing."""
    return {
        "REPLICATION SLAVE ON *.*": "replication_slave",
        "REPLICATION CLIENT ON *.*": "replication_client",
        f"SELECT ON {login.database.name}.*": "tables",
        f"CREATE ON {login.marks}.*": "watermarks",
        f"SELECT ON {login.marks}.*": "watermark_grants",
        f"INSERT ON {login.marks}.*": "watermark_grants",
        f"UPDATE ON {login.marks}.*": "watermark_grants",
    }


def test_each_documented_grant_is_needed(login: Login) -> None:
    grants = documented(login)
    for missing, name in grants.items():
        login.grant(*(grant for grant in grants if grant != missing))
        assert [level for found, level in bad(login.check()) if found == name] == ["error"]
        login.database.run(
            f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {login.sql}",
        )
    login.grant(*grants)
    assert bad(login.check()) == set()


def test_each_missing_grant_is_shown(login: Login) -> None:
    """From nothing to everything, by running what the findings say."""
    names = []
    while findings := [one for one in login.check() if one.level == "error"]:
        names.append(findings[0].name)
        assert len(names) < 10, names
        grants = [one for one in statements(findings[0]) if one.startswith("GRANT")]
        if findings[0].name == "tables":
            assert findings[0].fix is not None
            grants = [findings[0].fix.partition("; or ")[2].strip(";")]
        if findings[0].name == "watermarks":
            grants = statements(findings[0])
        login.database.run(*grants)
    expected = {"replication_slave", "replication_client", "tables"}
    assert set(names) == expected | {"watermarks", "watermark_grants"}
    assert bad(login.check()) == set()


def test_without_watermarks_nothing_is_written(login: Login) -> None:
    login.grant(*list(documented(login))[:3])
    assert bad(login.check(marks=False)) == set()


def test_grants_by_a_role(login: Login) -> None:
    role = f"role_{login.name}"
    run = login.database.run
    run(f"CREATE ROLE {role}", *(f"GRANT {grant} TO {role}" for grant in documented(login)))
    try:
        login.grant(role)
        assert ("replication_slave", "error") in bad(login.check())
        if login.database.flavour == "mariadb":
            run(f"SET DEFAULT ROLE {role} FOR {login.sql}")
        else:
            run(f"SET DEFAULT ROLE {role} TO {login.sql}")
        assert bad(login.check()) == set()
    finally:
        run(f"DROP ROLE {role}")


def test_a_table_made_by_hand(login: Login) -> None:
    login.grant(*(grant for grant in documented(login) if not grant.startswith("CREATE")))
    finding = only(login.check(), "watermarks", "error")
    login.database.run(*statements(finding))
    assert only(login.check(), "watermarks", "ok").message.endswith("is there")
    login.database.run(f"ALTER TABLE {login.marks}.watermark DROP COLUMN clock_us")
    finding = only(login.check(), "watermarks", "error")
    assert "not of the form" in finding.message
    login.database.run(*statements(finding))
    assert bad(login.check()) == set()
    login.database.run(f"ALTER TABLE {login.marks}.watermark DROP PRIMARY KEY")
    only(login.check(), "watermarks", "error")


def test_a_part_of_a_table(login: Login) -> None:
    """With grants on some columns the others are not even to be seen."""
    grants = [grant for grant in documented(login) if not grant.startswith("SELECT")]
    name = login.database.name
    login.grant(*grants, f"SELECT ON {name}.items", f"SELECT (id) ON {name}.orders")
    finding = only(login.check(), "select", "error")
    assert f"`{name}`.`orders`" in finding.message
    login.database.run(*statements(finding))
    assert bad(login.check()) == set()


def test_a_table_that_is_being_altered_counts_as_readable(shop: MysqlDatabase) -> None:
    with closing(shop.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES orders WRITE")
        assert bad(check(shop)) == set()


# -- tables ----------------------------------------------------------------------------------------


def test_patterns_that_match_nothing(shop: MysqlDatabase) -> None:
    plan = plan_of(shop)
    finding = only(check(shop, dataclasses.replace(plan, tables=("nosuch.*",))), "tables", "error")
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
    parked = {one.message.partition(" is left out")[0]: one for one in findings
              if one.name == "parked"}  # fmt: skip
    cascaded = {f"`{shop.name}`.`child`"} if shop.flavour != "mysql9" else set()
    assert set(parked) == {f"`{shop.name}`.`keyless`"} | cascaded
    assert "differ by case only" in only(findings, "table_case", "warning").message
    finding = only(findings, "engine", "warning")
    shop.run(*statements(finding))
    redump = check(shop, dataclasses.replace(plan_of(shop), cascades="redump"))
    assert len([one for one in redump if one.name == "parked"]) == 1
    assert ("cascades" in {one.name for one in redump}) is bool(cascaded)
    assert "engine" not in {one.name for one in redump}


def test_nothing_can_be_captured(mysql_database: MysqlDatabase) -> None:
    mysql_database.run("CREATE TABLE keyless (a INT)")
    only(check(mysql_database), "tables", "error")


# -- where the chain ends --------------------------------------------------------------------------


def now(server: BinlogServer, flavour: Flavour) -> tuple[MysqlPosition, str]:
    """The end of the log, and the server's name for itself."""
    statement = "SHOW BINARY LOG STATUS" if flavour == "mysql9" else "SHOW MASTER STATUS"
    mariadb = flavour == "mariadb"
    gtids = server.rows(f"SELECT @@GLOBAL.{'gtid_binlog_pos' if mariadb else 'gtid_executed'}")
    name = server.rows(f"SELECT @@GLOBAL.{'server_uid' if mariadb else 'server_uuid'}")
    file, offset = server.rows(statement)[0][:2]
    return MysqlPosition(file, offset, gtids[0][0].replace("\n", "")), name[0][0]


def purge(server: BinlogServer, file: str) -> None:
    """Remove all logs but the newest; MariaDB keeps one until InnoDB does not need it any more."""
    end = time.monotonic() + 30
    while file in (logs := [row[0] for row in server.rows("SHOW BINARY LOGS")]):
        assert time.monotonic() < end
        server.run(f"PURGE BINARY LOGS TO '{logs[-1]}'")


def test_purged_logs(start_server: ServerFactory, flavour: Flavour) -> None:
    server = start_server(flavour)
    database = make_mysql_database(server, flavour)
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    position, name = now(server, flavour)
    plan = dataclasses.replace(plan_of(database), chain=(position, name))
    only(check(database, plan), "position", "ok")
    by_file = MysqlPosition(position.file, position.offset)
    other = dataclasses.replace(plan, chain=(by_file, "another server"))
    only(check(database, other), "position", "warning")
    database.run("INSERT INTO orders VALUES (1)", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge(server, position.file)
    assert "is lost" in only(check(database, plan), "position", "error").message
    plain = dataclasses.replace(plan, chain=(by_file, name))
    assert "is lost" in only(check(database, plain), "position", "error").message


@MYSQL_ONLY
def test_a_server_with_another_history(shop: MysqlDatabase) -> None:
    position = MysqlPosition("binlog.000001", 4, f"{uuid.uuid4()}:1-5")
    plan = dataclasses.replace(plan_of(shop), chain=(position, "another server"))
    assert "another history" in only(check(shop, plan), "position", "error").message


def test_prepared_transactions(start_server: ServerFactory) -> None:
    server = start_server("mariadb")
    database = make_mysql_database(server, "mariadb")
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        for statement in ("XA START 'x'", "INSERT INTO orders VALUES (1)", "XA END 'x'"):
            cursor.execute(statement)
        cursor.execute("XA PREPARE 'x'")
    only(check(database), "prepared", "warning")
    chained = dataclasses.replace(plan_of(database), chain=now(server, "mariadb"))
    assert "prepared" not in {one.name for one in check(database, chained)}
    database.run("XA ROLLBACK 'x'")
    assert bad(check(database)) == set()


def test_an_unencrypted_connection_from_afar(shop: MysqlDatabase) -> None:
    """The test's server is on loopback: the connection is told another name for it."""
    with closing(shop.cdc_connect(ssl_disabled=True)) as connection:
        connection.host = "db.example"
        finding = only(run_preflight(connection, plan_of(shop)), "encryption", "warning")
    assert finding.fix is not None
