"""Preflight on real servers set wrong in each way: the fix is run, and the finding is gone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import psycopg2.extras
import pytest

from devtools.services.postgres import NOT_DURABLE, PostgresServer
from tests.fixtures.postgres_partitions import GOOD_PARTITIONS, SPOILED_PARTITIONS
from tests.fixtures.services import Database, make_database
from tideline_capture.sources.finding import Finding
from tideline_capture.sources.postgres.checks.preflight import run_preflight

SLOT = "tideline_check"
PUBLICATION = 'Tide"line'
QUOTED = '"Tide""line"'


@pytest.fixture
def shop(database: Database) -> Database:
    """Two good tables; nothing else."""
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE items (id int, line int, PRIMARY KEY (id, line))",
    )
    return database


def check(dsn: str, *tables: str, exclude: tuple[str, ...] = ()) -> list[Finding]:
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    try:
        return run_preflight(
            connection,
            tables=tables or ("public.*",),
            exclude=exclude,
            slot=SLOT,
            publication=PUBLICATION,
        )
    finally:
        connection.close()


def named(findings: list[Finding], name: str) -> list[Finding]:
    return [finding for finding in findings if finding.name == name]


def only(findings: list[Finding], name: str, level: str) -> Finding:
    found = named(findings, name)
    assert [one.level for one in found] == [level], found
    return found[0]


def statement(finding: Finding) -> str:
    """The fix as it would be pasted into psql."""
    assert finding.fix is not None
    return finding.fix


def errors(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "error"]


def test_a_good_source(shop: Database) -> None:
    findings = check(shop.dsn)
    assert errors(findings) == []
    assert only(findings, "tables", "ok").message == "2 tables can be captured"
    assert "will create" in only(findings, "publication", "ok").message
    assert "will create" in only(findings, "slot", "ok").message
    assert named(findings, "encryption") == []


def test_nothing_is_changed(shop: Database) -> None:
    check(shop.dsn)
    assert shop.rows("SELECT 1 FROM pg_publication") == []
    assert shop.rows("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []


def test_no_table_matches(shop: Database) -> None:
    finding = only(check(shop.dsn, "nope.*"), "tables", "warning")
    assert "public.items, public.orders" in finding.message


def test_all_tables_excluded(shop: Database) -> None:
    only(check(shop.dsn, exclude=("public.*",)), "tables", "warning")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("CREATE TABLE t (id int)", "no primary key"),
        ("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING", "NOTHING"),
        ("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)", "unlogged"),
        (
            "CREATE TABLE t (id int NOT NULL); CREATE UNIQUE INDEX i ON t (id);"
            " ALTER TABLE t REPLICA IDENTITY USING INDEX i; DROP INDEX i",
            "index of its replica identity is gone",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY LIST (id);"
            " CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1);"
            " ALTER TABLE t1 REPLICA IDENTITY NOTHING",
            "NOTHING",
        ),
        *((spoiled, "another than the key") for spoiled in SPOILED_PARTITIONS),
    ],
)
def test_a_quarantined_table_is_named_and_no_error(shop: Database, spoil: str, reason: str) -> None:
    shop.run(spoil)
    findings = check(shop.dsn)
    finding = only(findings, "quarantined", "warning")
    assert '"public"."t"' in finding.message
    assert reason in finding.message
    assert finding.fix is not None
    assert errors(findings) == []
    assert '"t"' not in "".join(one.fix or "" for one in named(findings, "publication"))


@pytest.mark.parametrize(
    "spoil",
    [
        "CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING",
        "CREATE UNLOGGED TABLE t (id int PRIMARY KEY)",
        'CREATE TABLE t (id int NOT NULL); CREATE UNIQUE INDEX "odd ""i" ON t (id)',
    ],
)
def test_the_fix_of_a_quarantined_table(shop: Database, spoil: str) -> None:
    shop.run(spoil)
    shop.run(statement(only(check(shop.dsn), "quarantined", "warning")))
    findings = check(shop.dsn)
    assert named(findings, "quarantined") == []
    assert only(findings, "tables", "ok").message == "3 tables can be captured"


def test_foreign_tables_are_quarantined(shop: Database) -> None:
    shop.run(
        "CREATE FOREIGN DATA WRAPPER w",
        "CREATE SERVER s FOREIGN DATA WRAPPER w",
        "CREATE FOREIGN TABLE f (id int) SERVER s",
    )
    assert "foreign table" in only(check(shop.dsn), "quarantined", "warning").message


def test_partitions_are_captured_through_their_root(shop: Database) -> None:
    shop.run(
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY LIST (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)",
    )
    findings = check(shop.dsn)
    assert only(findings, "tables", "ok").message == "3 tables can be captured"
    assert named(findings, "quarantined") == []


@pytest.mark.parametrize("statements", GOOD_PARTITIONS)
def test_partitions_with_an_identity_of_the_roots_key(shop: Database, statements: str) -> None:
    shop.run(statements)
    assert named(check(shop.dsn), "quarantined") == []


def test_replica_identity_full_with_a_key_is_fine(shop: Database) -> None:
    shop.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    assert named(check(shop.dsn), "quarantined") == []


def test_none_of_the_tables_can_be_captured(database: Database) -> None:
    database.run("CREATE TABLE t (id int)")
    findings = check(database.dsn)
    assert "none of the 1" in only(findings, "tables", "warning").message


@pytest.mark.parametrize("column", ["_tl_seq", "_TL_x", "_metadata"])
def test_reserved_columns(shop: Database, column: str) -> None:
    shop.run(f'ALTER TABLE orders ADD "{column}" int')
    finding = only(check(shop.dsn), "reserved", "error")
    assert f'"{column}"' in finding.message
    shop.run(statement(finding).replace("…", "seq"))
    assert named(check(shop.dsn), "reserved") == []


def test_columns_that_differ_by_case(shop: Database) -> None:
    shop.run('ALTER TABLE orders ADD "NOTE" text')
    shop.run(statement(only(check(shop.dsn), "column_case", "error")).replace("…", "other"))
    assert named(check(shop.dsn), "column_case") == []


def test_tables_that_differ_by_case(shop: Database) -> None:
    shop.run('CREATE TABLE "Orders" (id int PRIMARY KEY)')
    finding = only(check(shop.dsn), "table_case", "warning")
    assert "public.Orders, public.orders" in finding.message


def test_generated_columns_are_noted(shop: Database) -> None:
    shop.run("ALTER TABLE orders ADD twice int GENERATED ALWAYS AS (id * 2) STORED")
    assert "twice" in only(check(shop.dsn), "generated", "ok").message


def make_publication(shop: Database, rest: str) -> None:
    shop.run(f"CREATE PUBLICATION {QUOTED} {rest}")


BOTH = "FOR TABLE orders, items WITH (publish_via_partition_root = true)"


def test_a_publication_that_is_complete(shop: Database) -> None:
    make_publication(shop, BOTH)
    findings = check(shop.dsn)
    assert errors(findings) == []
    assert "all operations" in only(findings, "publication", "ok").message


@pytest.mark.parametrize(
    ("rest", "name"),
    [
        (BOTH.replace("(", "(publish = 'insert, update', "), "publication_operations"),
        ("FOR TABLE orders, items", "publication_root"),
        (BOTH.replace("orders,", "orders WHERE (id > 1),"), "publication_filter"),
        (BOTH.replace("orders,", "orders (id, note),"), "publication_filter"),
    ],
)
def test_a_publication_that_is_not(shop: Database, rest: str, name: str) -> None:
    make_publication(shop, rest)
    shop.run(statement(only(check(shop.dsn), name, "error")))
    assert errors(check(shop.dsn)) == []


def test_a_publication_with_a_table_that_has_no_identity(shop: Database) -> None:
    shop.run("CREATE TABLE t (id int)")
    make_publication(shop, BOTH.replace("items", "items, t"))
    shop.run(statement(only(check(shop.dsn), "publication_identity", "error")))
    assert errors(check(shop.dsn)) == []


def test_a_publication_for_all_tables(shop: Database) -> None:
    make_publication(shop, "FOR ALL TABLES WITH (publish_via_partition_root = true)")
    shop.run(statement(only(check(shop.dsn), "publication_all", "error")))
    assert errors(check(shop.dsn)) == []


def test_tables_that_tideline_adds_itself(shop: Database) -> None:
    make_publication(shop, BOTH.replace("orders, items", "orders"))
    finding = only(check(shop.dsn), "publication_tables", "ok")
    assert '"public"."items"' in finding.message


@pytest.fixture
def role(postgres: PostgresServer, shop: Database) -> Iterator[tuple[str, str]]:
    """A role that may log in and nothing else: its quoted name, and its dsn."""
    name = f'cap"ture {uuid.uuid4().hex[:6]}'
    quoted = '"' + name.replace('"', '""') + '"'
    shop.run(
        f"CREATE ROLE {quoted} LOGIN PASSWORD 'pw'", "REVOKE USAGE ON SCHEMA public FROM public"
    )
    yield quoted, postgres.dsn(shop.name, user=name, password="pw")
    shop.run(f"DROP OWNED BY {quoted}", f"DROP ROLE {quoted}")


def test_least_privilege(shop: Database, role: tuple[str, str]) -> None:
    """From nothing to a good role, by running the fixes as the owner, and no more than these."""
    _, dsn = role
    findings = check(dsn)
    assert {one.name for one in errors(findings)} == {
        "replication",
        "usage",
        "select",
        "publication",
    }
    for finding in errors(findings):
        shop.run(statement(finding))
    assert errors(check(dsn)) == []
    shop.run("CREATE TABLE later (id int PRIMARY KEY)")
    findings = check(dsn)
    assert {one.name for one in errors(findings)} == {"select"}
    for finding in [*errors(findings), only(findings, "publication_tables", "warning")]:
        shop.run(statement(finding))
    findings = check(dsn)
    assert errors(findings) == []
    assert named(findings, "publication_tables") == []


def test_a_role_that_owns_its_tables_makes_the_publication(
    shop: Database, role: tuple[str, str]
) -> None:
    name, dsn = role
    shop.run(
        f"ALTER ROLE {name} REPLICATION",
        f"GRANT USAGE ON SCHEMA public TO {name}",
        f"ALTER TABLE orders OWNER TO {name}",
        f"ALTER TABLE items OWNER TO {name}",
    )
    finding = only(check(dsn), "publication", "error")
    assert "CREATE on the database" in finding.message
    shop.run(f'GRANT CREATE ON DATABASE "{shop.name}" TO {name}')
    assert errors(check(dsn)) == []


def test_membership_in_rds_replication_counts(shop: Database, role: tuple[str, str]) -> None:
    name, dsn = role
    shop.run("CREATE ROLE rds_replication", f"GRANT rds_replication TO {name}")
    try:
        assert "rds_replication" in only(check(dsn), "replication", "ok").message
    finally:
        shop.run("DROP ROLE rds_replication")


def make_slot(database: Database, plugin: str = "pgoutput") -> None:
    database.run(f"SELECT pg_create_logical_replication_slot('{SLOT}', '{plugin}')")


def test_a_slot_that_is_ours(shop: Database) -> None:
    make_publication(shop, BOTH)
    make_slot(shop)
    assert "can be read" in only(check(shop.dsn), "slot", "ok").message


def test_a_slot_of_another_plugin(shop: Database) -> None:
    make_publication(shop, BOTH)
    shop.run(f"SELECT pg_create_physical_replication_slot('{SLOT}')")
    finding = only(check(shop.dsn), "slot", "error")
    assert "physical" in finding.message
    shop.run(statement(finding))
    assert errors(check(shop.dsn)) == []


def test_a_slot_of_another_database(shop: Database, postgres: PostgresServer) -> None:
    other = make_database(postgres)
    make_slot(other)
    try:
        finding = only(check(shop.dsn), "slot", "error")
        assert other.name in finding.message
        assert statement(finding) == "set source.slot to another name"
    finally:
        other.run(f"SELECT pg_drop_replication_slot('{SLOT}')")
        shop.run(f'DROP DATABASE "{other.name}" WITH (FORCE)')


def test_a_slot_without_its_publication(shop: Database) -> None:
    make_slot(shop)
    finding = only(check(shop.dsn), "slot", "error")
    assert "older than its publication" in finding.message
    shop.run(statement(finding))
    assert errors(check(shop.dsn)) == []


def test_a_slot_that_is_read(shop: Database) -> None:
    make_publication(shop, BOTH)
    make_slot(shop)
    reader = psycopg2.connect(
        shop.dsn, connection_factory=psycopg2.extras.LogicalReplicationConnection
    )
    cursor = reader.cursor()
    options = {"proto_version": "1", "publication_names": QUOTED}
    cursor.start_replication(slot_name=SLOT, options=options, decode=False)
    try:
        message = only(check(shop.dsn), "slot", "ok").message
        assert "being read by the process" in message
    finally:
        reader.close()


def test_a_database_in_sql_ascii(postgres: PostgresServer, database: Database) -> None:
    name = f"ascii_{uuid.uuid4().hex[:8]}"
    database.run(
        f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0",
    )
    try:
        only(check(postgres.dsn(name)), "encoding", "error")
    finally:
        database.run(f"DROP DATABASE {name}")


@pytest.fixture
def wrong_server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server with everything wrong that needs a restart."""
    settings = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "0"}
    with PostgresServer(tmp_path / "wrong", settings={**NOT_DURABLE, **settings}) as server:
        for key in settings:
            # From here on the server's own file decides, where ALTER SYSTEM writes.
            del server._settings[key]
        yield server


def test_server_settings(wrong_server: PostgresServer) -> None:
    database = make_database(wrong_server)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    database.run("SELECT pg_create_physical_replication_slot('other')")
    findings = check(database.dsn)
    assert {one.name for one in errors(findings)} == {"wal_level", "slots", "senders"}
    only(findings, "slot_keep", "warning")
    for finding in [*errors(findings), only(findings, "slot_keep", "warning")]:
        database.run(*statement(finding).split(" -- ")[0].strip(" ;").split(";"))
    wrong_server.restart()
    findings = check(database.dsn)
    assert [one for one in findings if one.level != "ok"] == []


def test_a_lost_slot(own_postgres: PostgresServer, own_database: Database) -> None:
    own_database.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        f"CREATE PUBLICATION {QUOTED} FOR TABLE t WITH (publish_via_partition_root = true)",
        "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'",
        "SELECT pg_reload_conf()",
    )
    make_slot(own_database)
    lost = "SELECT wal_status FROM pg_replication_slots"
    for _ in range(20):
        own_database.run(
            "SELECT pg_logical_emit_message(false, 'x', 'y')",
            "SELECT pg_switch_wal()",
            "CHECKPOINT",
        )
        if own_database.rows(lost) == [("lost",)]:
            break
    finding = only(check(own_database.dsn), "slot", "error")
    assert "is lost" in finding.message
    own_database.run(statement(finding))
    assert errors(check(own_database.dsn)) == []
