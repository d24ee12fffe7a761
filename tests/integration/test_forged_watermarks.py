"""Watermarks in other hands: whoever may write what looks like one forges nothing and stops
nothing.

PostgreSQL: a role without any grant writes messages under our prefix, and another one, which may
monitor, sees our statements. MySQL and MariaDB: someone may write to the table of watermarks.
"""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg2
import pytest

from tests.conformance.test_keyless import COUNTED, chain_bag
from tests.fixtures.capture import Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.mysql_servers import WATERMARK_DATABASE, MysqlDatabase
from tests.fixtures.services import Database
from tests.support.checks import check_equal
from tideline.contract.request import DumpRequest, RequestState
from tideline_console.status import read_status
from tideline_console.status.text import print_status

MARKS = f"{WATERMARK_DATABASE}.watermark"
DAY_US = 86_400_000_000
ABSURD = 9_000_000_000_000_000_000
_CONTENT = re.compile(r"'tideline', '([0-9a-f]{32} [LHCB] \S+ \d+ \S+)'")


def now_us() -> int:
    return time.time_ns() // 1000


def forged(incarnation: str) -> list[bytes]:
    """Without a signature, with a wrong one, malformed, and of a time to come."""
    tomorrow, wrong = now_us() + DAY_US, "A" * 20
    texts = [
        "x tok 1",
        "P tok 5",
        f"P tok 5 {wrong}",
        "H tok xx",
        f"L tok 0 {wrong}",
        f"B tok {ABSURD}",
        f"B tok {tomorrow}",
        f"B tok {tomorrow} {wrong}",
        f"C tok 0 {wrong}",
        "",
    ]
    made = [f"{incarnation} {text}".encode() for text in texts]
    return [*made, f"{incarnation} H ".encode() + b"\xff\xfe 1 x", b"\xff\x00"]


class Roles:
    """``pleb`` has no grant at all, ``monitor`` is a member of pg_monitor."""

    def __init__(self, database: Database) -> None:
        self.names = {role: f"{role}_{database.name}" for role in ("pleb", "monitor")}
        self._database = database
        for name in self.names.values():
            database.run(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
        database.run(f"GRANT pg_monitor TO {self.names['monitor']}")

    def drop(self) -> None:
        for name in self.names.values():
            self._database.run(f"DROP ROLE {name}")

    def write(self, *contents: bytes, prefix: str = "tideline") -> None:
        """As ``pleb``."""
        emit = "SELECT pg_logical_emit_message(true, %s, %s::bytea)"
        self._as("pleb", [(emit, (prefix, one)) for one in contents])

    def seen(self) -> list[str]:
        """Statements of our sessions, as ``monitor`` sees them."""
        query = (
            "SELECT query FROM pg_stat_activity WHERE application_name LIKE 'tideline%%'"
            " AND datname = %s"
        )
        return self._as("monitor", [(query, (self._database.name,))])

    def _as(self, role: str, statements: list[tuple[str, tuple[object, ...]]]) -> list[str]:
        connection = psycopg2.connect(self._database.dsn, user=self.names[role], password="x")
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                for statement, values in statements:
                    cursor.execute(statement, values)
                return [str(row[0]) for row in cursor.fetchall()]
        finally:
            connection.close()


@pytest.fixture
def roles(database: Database) -> Iterator[Roles]:
    made = Roles(database)
    yield made
    made.drop()


@pytest.fixture
def items(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL)",
        "INSERT INTO items SELECT g, g FROM generate_series(1, 40) g",
    )
    return pipeline_of(database, capture={"chunk_rows": 8, "delay_ms": 20})


def claims_nothing_to_come(items: Pipeline[Database] | Pipeline[MysqlDatabase]) -> None:
    """No manifest is complete through a time after it was written."""
    for manifest in items.manifests():
        if manifest.source_time_us is not None:
            assert manifest.source_time_us <= (manifest.written_at_us or 0)


def test_a_role_without_grants_forges_nothing(items: Pipeline[Database], roles: Roles) -> None:
    worker = items.start()
    items.catch_up(worker)
    incarnation = items.manifest().incarnation
    for content in forged(incarnation):
        roles.write(content)
    items.database.run("UPDATE items SET v = v + 1 WHERE id % 3 = 0")
    assert items.ask(DumpRequest("again", ("public.items",))).state is RequestState.DONE
    items.catch_up(worker)
    assert "looks like a watermark of this worker" in worker.output()
    assert "tok xx" not in worker.output() and str(ABSURD) not in worker.output()
    worker.terminate()
    claims_nothing_to_come(items)
    print_status(read_status(items.settings))
    check_equal(items.settings, items.database, ["public.items"])


def test_what_was_forged_before_keeps_no_worker_from_starting(
    items: Pipeline[Database], roles: Roles
) -> None:
    """They lie in the log, right where the next worker begins to read."""
    items.drain()
    roles.write(*forged(items.manifest().incarnation))
    items.database.run("INSERT INTO items VALUES (99, 99)")
    items.drain()
    claims_nothing_to_come(items)
    check_equal(items.settings, items.database, ["public.items"])


def test_what_monitoring_sees_is_of_no_use(items: Pipeline[Database], roles: Roles) -> None:
    """The whole statement, signature and all: it can be copied, and says nothing once more."""
    worker = items.start()
    items.catch_up(worker)
    found: set[str] = set()

    def looked() -> bool:
        found.update(one for text in roles.seen() for one in _CONTENT.findall(text))
        return bool(found)

    poll("our statements are seen", looked)
    items.database.run("UPDATE items SET v = 0 WHERE id = 7")
    for content in found:
        words = content.split(" ")
        later = " ".join([*words[:3], str(now_us() + DAY_US), words[4]])
        other = " ".join([words[0], "B", *words[2:]])
        for copied in (content, later, other):
            roles.write(copied.encode())
    assert items.ask(DumpRequest("again", ("public.items",))).state is RequestState.DONE
    items.catch_up(worker)
    worker.terminate()
    claims_nothing_to_come(items)
    check_equal(items.settings, items.database, ["public.items"])


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
class TestTable:
    """Somebody may write to the table of watermarks, and sees what is in it."""

    def test_nothing_is_forged(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
    ) -> None:
        items = shop(mysql_database, pipeline_of)
        with own_table(mysql_database):
            worker = items.start()
            items.catch_up(worker)
            attack(items, worker)
            claims_nothing_to_come(items)
            print_status(read_status(items.settings))
            items.drain()
        check_equal(items.settings, mysql_database, [f"{mysql_database.name}.items"])

    def test_a_log_that_has_it_in_another_form_is_read(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
    ) -> None:
        """It is named while it is there; that the log has it stops no worker afterwards."""
        items = shop(mysql_database, pipeline_of)
        with own_table(mysql_database):
            items.drain()
            incarnation = items.manifest().incarnation
            mysql_database.run(
                f"DROP TABLE {MARKS}",
                f"CREATE TABLE {MARKS} (incarnation VARCHAR(64) PRIMARY KEY, kind POINT, at YEAR)",
                f"INSERT INTO {MARKS} VALUES ('{incarnation}', POINT(1, 1), 2026)",  # noqa: S608
                f"ALTER TABLE {MARKS} DROP PRIMARY KEY",
                f"INSERT INTO {MARKS} VALUES ('{incarnation}', POINT(1, 1), 2026)",  # noqa: S608
                f"DROP TABLE {MARKS}",
                f"INSERT INTO {mysql_database.name}.items VALUES (99, 99)",  # noqa: S608
            )
            items.drain()
        check_equal(items.settings, mysql_database, [f"{mysql_database.name}.items"])

    def test_a_table_without_a_key_is_copied_right(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
    ) -> None:
        """Rows of pulses that someone else wrote, before the copy and while it is begun."""
        mysql_database.run(
            "CREATE TABLE bag (a INT, t VARCHAR(40))",
            "INSERT INTO bag VALUES (1, 'x'), (1, 'x'), (2, NULL), (3, 'y'), (3, 'y')",
        )
        table = f"{mysql_database.name}.bag"
        items = pipeline_of(mysql_database, tables=COUNTED)
        with own_table(mysql_database):
            items.drain()
            probes = forged_pulses(items.manifest().incarnation)
            mysql_database.run(*probes, "INSERT INTO bag VALUES (4, 'z')")
            worker = items.start(stop="after-low:1")
            with items.asking() as control_client:
                control_client.ask(DumpRequest("again", (table,)))
                worker.wait_stopped()
            mysql_database.run(*probes, "DELETE FROM bag WHERE a = 1", *probes)
            worker.signal(signal.SIGCONT)
            assert items.final_answer("again").state is RequestState.DONE
            worker.terminate()
            items.drain()
        assert chain_bag(cast(Any, items), table) == Counter(
            mysql_database.rows("SELECT a, t FROM bag")
        )


def forged_pulses(incarnation: str) -> list[str]:
    """Bad tokens and absurd clocks, in the row of every lane."""
    return [
        f"REPLACE {MARKS} VALUES ('{incarnation}~{lane}', 'P', '{token}', {clock})"  # noqa: S608
        for lane in range(3)
        for token, clock in (("bad", ABSURD), ("x.0.y", -1), ("", 0))
    ]


def shop(database: MysqlDatabase, pipeline_of: PipelineFactory) -> Pipeline[MysqlDatabase]:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL)",
        *(f"INSERT INTO items VALUES ({number}, {number})" for number in range(40)),  # noqa: S608
    )
    return pipeline_of(database, capture={"chunk_rows": 8, "delay_ms": 20})


def attack(items: Pipeline[MysqlDatabase], worker: WorkerProcess) -> None:
    """Every kind of row, forged and copied, while a dump is read."""
    database, incarnation = items.database, items.manifest().incarnation
    tomorrow = now_us() + DAY_US
    rows = database.rows(f"SELECT token FROM {MARKS} WHERE incarnation = '{incarnation}'")  # noqa: S608
    copied = str(rows[0][0])
    tokens = ("tok", copied, f"{'0' * 32}:{'A' * 20}", "a.b", ":")
    statements = [
        f"UPDATE {MARKS} SET kind = '{kind}', token = '{token}', clock_us = {clock}"  # noqa: S608
        f" WHERE incarnation = '{incarnation}'"
        for kind in "LHCBPx"
        for token in tokens
        for clock in (tomorrow, ABSURD, -1)
    ]
    database.run(f"UPDATE {database.name}.items SET v = v + 1 WHERE id % 3 = 0", *statements)  # noqa: S608
    assert items.ask(DumpRequest("again", (f"{database.name}.items",))).state is RequestState.DONE
    items.catch_up(worker)
    assert "looks like a watermark of this worker" in worker.output()
    worker.terminate()


@contextmanager
def own_table(database: MysqlDatabase) -> Iterator[None]:
    """Other tests use the same table on the run's server: it ends as it was made."""
    try:
        yield
    finally:
        database.server.run(f"DROP TABLE IF EXISTS {MARKS}")
