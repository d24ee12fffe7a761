# ruff: noqa: S608  statements are made of constants and our own names
"""Dumps of MySQL and MariaDB by a real worker, with something happening at an exact place.

The worker stops itself at a named point; the test changes the source meanwhile and lets it go on.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.fixtures.capture import IDLE_S, Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.mysql_readers import reading_only
from tests.fixtures.mysql_servers import (
    WATERMARK_DATABASE,
    Flavour,
    MysqlDatabase,
    ServerFactory,
    catch_up,
    follow,
    make_mysql_database,
)
from tests.support.checks import Captured, check_equal
from tideline.contract.open_state import TableCondition
from tideline.contract.request import DumpRequest, RequestState, TimeRange

ROWS = 50
MARKS = f"{WATERMARK_DATABASE}.watermark"
SCHEMA = (
    "CREATE TABLE items (id INT PRIMARY KEY, v INT NOT NULL, at DATETIME, ts TIMESTAMP NULL,"
    " day DATE)",
    "INSERT INTO items VALUES "
    + ", ".join(
        f"({g}, {g}, '2024-01-01' + INTERVAL {g} HOUR, '2024-01-01' + INTERVAL {g} HOUR,"
        f" '2024-01-01' + INTERVAL {g} DAY)"
        for g in range(1, ROWS + 1)
    ),
)


@pytest.fixture
def items(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> Pipeline[MysqlDatabase]:
    mysql_database.run(*SCHEMA)
    # With a pause no chunk is read ahead: a worker that is stopped then holds no lock.
    return pipeline_of(mysql_database, capture={"chunk_rows": 20, "delay_ms": 1})


def name(items: Pipeline[MysqlDatabase]) -> str:
    return f"{items.database.name}.items"


def dump_with(
    items: Pipeline[MysqlDatabase], point: str, meanwhile: Callable[[WorkerProcess], None]
) -> Captured:
    """The first dump, stopped at ``point`` while ``meanwhile`` happens; ends equal and whole."""
    worker = items.start(stop=point, until_idle_s=IDLE_S)
    worker.wait_stopped()
    reached, _, count = point.partition(":")
    assert worker.points()[reached] == int(count)
    meanwhile(worker)
    worker.signal(signal.SIGCONT)
    assert worker.wait() == 0, worker.output()[-3000:]
    assert items.state().requests == ()
    return check_equal(items.settings, items.database, [name(items)])


WINDOWS = {
    "updates": ["UPDATE items SET v = v + 1 WHERE id % 3 = 0", "DELETE FROM items WHERE id < 5"],
    "deleted and inserted": [
        "DELETE FROM items WHERE id = 3",
        "INSERT INTO items (id, v) VALUES (3, 3)",
        "REPLACE INTO items (id, v) VALUES (30, 0)",
    ],
    "keys up": ["UPDATE items SET id = id + 100 WHERE id IN (2, 4, 30, 49)"],
    "keys down": ["UPDATE items SET id = -id WHERE id IN (2, 4, 30, 49)"],
    "truncated": ["TRUNCATE items", "INSERT INTO items (id, v) VALUES (1, 1)"],
    "rewritten": ["ALTER TABLE items MODIFY v BIGINT NOT NULL", "UPDATE items SET v = -v"],
    "wider": ["ALTER TABLE items ADD w INT NOT NULL DEFAULT 7 FIRST", "DELETE FROM items LIMIT 1"],
    "recreated": [
        "DROP TABLE items",
        "CREATE TABLE items (id INT PRIMARY KEY, v INT NOT NULL, w TEXT)",
        "INSERT INTO items VALUES (7, 7, 'seven')",
    ],
    "swapped": [
        "CREATE TABLE _items_new LIKE items",
        "INSERT INTO _items_new SELECT id, v + 1000, at, ts, day FROM items WHERE id > 5",
        "RENAME TABLE items TO _items_old, _items_new TO items",
        "DROP TABLE _items_old",
    ],
}


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
@pytest.mark.parametrize("what", WINDOWS)
def test_changes_in_a_window(items: Pipeline[MysqlDatabase], what: str) -> None:
    dump_with(items, "between-watermarks:2", lambda worker: items.database.run(*WINDOWS[what]))
    assert items.table(name(items)).condition is TableCondition.ACTIVE


@pytest.mark.parametrize(
    ("flavour", "point", "what"),
    [
        ("mariadb", "between-chunks:1", "rewritten"),
        ("mariadb", "between-chunks:3", "swapped"),
        ("mysql8", "between-chunks:3", "truncated"),
    ],
)
def test_changes_between_chunks(items: Pipeline[MysqlDatabase], point: str, what: str) -> None:
    dump_with(items, point, lambda worker: items.database.run(*WINDOWS[what]))
    assert items.table(name(items)).condition is TableCondition.ACTIVE


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_keys_that_the_server_takes_for_the_same(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    mysql_database.run(
        "CREATE TABLE items (id VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci"
        " PRIMARY KEY, v INT)",
        "INSERT INTO items VALUES " + ", ".join(f"('key{g:02}', {g})" for g in range(ROWS)),
    )
    items = pipeline_of(mysql_database, capture={"chunk_rows": 20, "delay_ms": 1})
    dump_with(
        items,
        "between-watermarks:2",
        lambda worker: mysql_database.run(
            "UPDATE items SET id = UPPER(id) WHERE v % 3 = 0",
            "UPDATE items SET id = CONCAT(id, '  ') WHERE v % 5 = 0",
            "DELETE FROM items WHERE id = 'KEY21'",
            "INSERT INTO items VALUES ('kEy21 ', 0)",
            "UPDATE items SET id = 'kéy22' WHERE id = 'key22'",
        ),
    )
    assert items.table(name(items)).condition is TableCondition.ACTIVE


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
@pytest.mark.parametrize("rows", [0, 1])
def test_small_tables(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory, rows: int
) -> None:
    mysql_database.run(SCHEMA[0], f"INSERT INTO items (id, v) SELECT 1, 1 FROM DUAL LIMIT {rows}")
    items = pipeline_of(mysql_database)
    items.drain()
    assert items.table(name(items)).condition is TableCondition.ACTIVE
    captured = check_equal(items.settings, mysql_database, [name(items)])
    assert len(captured.rows(name(items))) == rows
    assert [
        delete_before.table for m in captured.manifests for delete_before in m.deletes_before
    ] == [name(items)]


class TestLocks:
    """Others hold the table, or everything; a dump waits, and then it ends."""

    @pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
    @pytest.mark.parametrize(
        "lock",
        ["LOCK TABLES items WRITE", f"LOCK TABLES {MARKS} READ", "FLUSH TABLES WITH READ LOCK"],
    )
    def test_held_for_a_while(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory, lock: str
    ) -> None:
        mysql_database.run(*SCHEMA)
        items = pipeline_of(mysql_database, capture={"chunk_rows": 5, "lock_timeout_s": 0.5})
        items.drain()
        worker = items.start()
        worker.wait_point("reading")
        with mysql_database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(lock)
            control_client = items.control_client()
            control_client.ask(DumpRequest("again", (name(items),)))
            time.sleep(3)
            answer = control_client.answer("again")
            assert answer is None or not answer.state.final
            control_client.close()
            cursor.execute("UNLOCK TABLES")
        assert items.ask(DumpRequest("again", (name(items),))).state is RequestState.DONE
        assert "Traceback" not in worker.output()
        worker.terminate()
        check_equal(items.settings, mysql_database, [name(items)])

    @pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
    def test_an_alter_that_waits_behind_a_transaction(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
    ) -> None:
        """Chunks wait behind the ALTER, which waits behind someone who reads."""
        mysql_database.run(*SCHEMA)
        items = pipeline_of(mysql_database, capture={"chunk_rows": 5, "lock_timeout_s": 0.5})
        alter = threading.Thread(
            target=mysql_database.run, args=("ALTER TABLE items ADD w INT NOT NULL DEFAULT 3",)
        )
        with mysql_database.connect(autocommit=False) as reads, reads.cursor() as cursor:
            cursor.execute("SELECT * FROM items")
            alter.start()
            poll("the ALTER waits", lambda: waits(mysql_database, "ALTER TABLE items%"))
            worker = items.start(until_idle_s=IDLE_S)
            worker.wait_point("reading")
            time.sleep(2)
            assert not items.state().tables or items.state().requests
        alter.join()
        assert worker.wait() == 0, worker.output()
        check_equal(items.settings, mysql_database, [name(items)])


def waits(database: MysqlDatabase, statement: str) -> bool:
    query = "SELECT 1 FROM information_schema.processlist WHERE state LIKE '%metadata lock%'"
    with database.connect() as connection, connection.cursor() as cursor:
        return bool(cursor.execute(f"{query} AND info LIKE '{statement}'"))


class TestRequests:
    """Requests to a worker that runs."""

    @pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
    def test_keys_times_and_the_whole(self, items: Pipeline[MysqlDatabase]) -> None:
        worker, table = items.start(), name(items)
        items.wait_state("the first dump ends", lambda s: table in s.tables and not s.requests)
        keys = tuple((str(key),) for key in (7, 1, 999, -3, 50))
        answer = items.ask(DumpRequest("keys", (table,), keys=keys, chunk_rows=2))
        assert (answer.state, answer.tables[0].rows) == (RequestState.DONE, len(keys))
        spans = {
            "at": TimeRange("at", "2024-01-01 10:00", "2024-01-01 20:00"),
            "ts": TimeRange("ts", "2024-01-01T12:00+02:00", "2024-01-01T22:00+02:00"),
            "day": TimeRange("day", "2024-01-11", "2024-01-21"),
        }
        for column, span in spans.items():
            answer = items.ask(DumpRequest(column, (table,), time=span, chunk_rows=4))
            assert answer.state is RequestState.DONE, answer
        wrong = items.ask(DumpRequest("wrong", (table,), time=TimeRange("nope", "1", "2")))
        assert wrong.state is RequestState.FAILED
        assert "no column 'nope'" in str(wrong.error)
        for number in range(2):
            assert items.ask(DumpRequest(f"whole-{number}", (table,))).state is RequestState.DONE
        worker.terminate()
        captured = check_equal(items.settings, items.database, [table])
        found: dict[str, list[tuple[str, int]]] = {}
        bounds = [(m.first_seq, m.accepted[0]) for m in captured.manifests if m.accepted]
        bounds = [bound for bound in bounds if bound[1] in ("keys", *spans, "whole-0", "whole-1")]
        for change in captured.table(table):
            asked = [request for first, request in bounds if first <= change.seq]
            if asked:
                found.setdefault(asked[-1], []).append((change.op, int(str(change.key[0]))))
        wanted = [("d", -3), ("d", 999), ("r", 1), ("r", 7), ("r", 50)]
        assert sorted(found["keys"]) == wanted
        for column in spans:
            assert found[column] == [("r", key) for key in range(10, 20)], column
        for number in range(2):
            assert len(found[f"whole-{number}"]) == ROWS

    @pytest.mark.parametrize("flavour", ["mysql8"])
    def test_two_tables_at_once_one_of_which_goes_away(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
    ) -> None:
        mysql_database.run(*SCHEMA, "CREATE TABLE other LIKE items")
        mysql_database.run("INSERT INTO other SELECT * FROM items")
        items = pipeline_of(mysql_database, capture={"chunk_rows": 5, "delay_ms": 50})
        worker = items.start()
        worker.wait_point("between-chunks", 4)
        mysql_database.run("DROP TABLE other")
        items.wait_state("the dumps end", lambda s: name(items) in s.tables and not s.requests)
        worker.terminate()
        check_equal(items.settings, mysql_database, [name(items)])


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
@pytest.mark.parametrize("point", ["after-low:1", "after-high:1"])
def test_a_worker_that_died_behind_a_mark_is_followed(
    point: str, items: Pipeline[MysqlDatabase]
) -> None:
    """The next one looks what the table of watermarks knows; the last mark may be of any kind."""
    items.drain()
    worker = items.start(stop=point)
    with items.asking() as control_client:
        control_client.ask(DumpRequest("again", (name(items),)))
        worker.wait_stopped()
    worker.kill()
    items.drain()
    assert items.final_answer("again").state is RequestState.DONE
    check_equal(items.settings, items.database, [name(items)])


class TestMarks:
    """Our table of watermarks in other hands."""

    @pytest.mark.parametrize("flavour", ["mariadb"])
    @pytest.mark.parametrize(
        "attack",
        [
            f"DROP TABLE {MARKS}",
            f"TRUNCATE {MARKS}",
            f"DELETE FROM {MARKS}",
            f"INSERT INTO {MARKS} VALUES ('other', 'L', 'x', 0), ('another', '?', '', -1)",
            f"UPDATE {MARKS} SET token = 'foreign', kind = 'H'",
        ],
        ids=lambda attack: attack.split(maxsplit=1)[0],
    )
    def test_the_dump_ends(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory, attack: str
    ) -> None:
        mysql_database.run(*SCHEMA)
        items = pipeline_of(mysql_database, capture={"chunk_rows": 2, "delay_ms": 40})
        with self.own_table(mysql_database):
            worker = items.start(until_idle_s=IDLE_S)
            worker.wait_point("between-watermarks", 5)
            mysql_database.run(attack)
            assert worker.wait() == 0, worker.output()[-3000:]
        assert "Traceback" not in worker.output()
        check_equal(items.settings, mysql_database, [name(items)])

    @pytest.mark.parametrize("flavour", ["mysql8"])
    @pytest.mark.parametrize(
        "attack",
        [
            f"ALTER TABLE {MARKS} DROP token",
            f"ALTER TABLE {MARKS} MODIFY token VARCHAR(8) NOT NULL",
            f"ALTER TABLE {MARKS} DROP kind, ADD kind INT NOT NULL DEFAULT 0",
            f"ALTER TABLE {MARKS} DROP PRIMARY KEY",
        ],
        ids=["dropped", "short", "number", "keyless"],
    )
    def test_another_form_of_it_is_named(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory, attack: str
    ) -> None:
        mysql_database.run(*SCHEMA)
        items = pipeline_of(mysql_database, capture={"chunk_rows": 2, "delay_ms": 40})
        with self.own_table(mysql_database):
            worker = items.start()
            worker.wait_point("between-watermarks", 5)
            # Locked, or a mark that comes in between does not fit the new form.
            mysql_database.run(f"LOCK TABLES {MARKS} WRITE", f"TRUNCATE {MARKS}", attack)
            assert worker.wait() == 2, worker.output()[-3000:]
            assert MARKS in worker.output().replace("`", "")
            assert "Traceback" not in worker.output()
            mysql_database.run(f"DROP TABLE {MARKS}")
            items.drain()
        check_equal(items.settings, mysql_database, [name(items)])

    @pytest.mark.parametrize("flavour", ["mariadb"])
    def test_a_log_that_leaves_them_out_is_named(
        self, flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
    ) -> None:
        server = start_server(flavour, binlog_ignore_db=WATERMARK_DATABASE)
        database = make_mysql_database(server, flavour)
        database.run(*SCHEMA)
        items = pipeline_of(database)
        worker = items.start()
        assert worker.wait() == 2, worker.output()
        assert "binlog_ignore_db" in worker.output()

    @pytest.mark.parametrize("flavour", ["mysql9"])
    def test_one_that_does_not_come_is_missed(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
    ) -> None:
        mysql_database.run(*SCHEMA)
        items = pipeline_of(mysql_database)
        items.drain()
        worker = items.start()
        worker.wait_point("reading")
        with self.own_table(mysql_database):
            mysql_database.run(
                f"CREATE TRIGGER {WATERMARK_DATABASE}.lost BEFORE UPDATE ON {MARKS}"
                " FOR EACH ROW SET NEW.kind = IF(NEW.kind = 'H', 'X', NEW.kind)"
            )
            control_client = items.control_client()
            control_client.ask(DumpRequest("again", (name(items),)))
            poll("it is missed", lambda: "did not come through its log" in worker.output())
            control_client.close()
            mysql_database.run(f"DROP TRIGGER {WATERMARK_DATABASE}.lost")
            assert items.ask(DumpRequest("again", (name(items),))).state is RequestState.DONE
        worker.terminate()
        check_equal(items.settings, mysql_database, [name(items)])

    @contextmanager
    def own_table(self, database: MysqlDatabase) -> Iterator[None]:
        """Other tests use the same table on the run's server: it ends as it was made."""
        try:
            yield
        finally:
            database.server.run(f"DROP TABLE IF EXISTS {MARKS}")


@pytest.mark.parametrize("flavour", ["mysql8"])
class TestReadOnly:
    """Without a right to write anything, from servers that nobody may write to."""

    def test_a_replica_as_the_source(
        self, flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
    ) -> None:
        primary, replica = start_server(flavour), start_server(flavour)
        follow(replica, primary)
        written = make_mysql_database(primary, flavour)
        written.run(*SCHEMA)
        source = reading_only(written)
        catch_up(replica, primary)
        replica.run(
            "SET GLOBAL read_only = ON"
            if flavour == "mariadb"
            else "SET GLOBAL super_read_only = ON"
        )
        login = source["url"].partition("//")[2].partition("@")[0]
        user, _, password = login.partition(":")
        items = pipeline_of(written, source={**source, "url": replica.url(user, password)})
        items.drain()
        worker = items.start()
        worker.wait_point("reading")
        written.run(*WINDOWS["updates"])
        written.run("FLUSH BINARY LOGS", *WINDOWS["keys up"])
        replica.run("FLUSH BINARY LOGS")
        before = items.manifest().source_time_us or 0
        poll(
            "heartbeats tell how far all is complete",
            lambda: items.heard_after(before + 2_000_000),
        )
        catch_up(replica, primary)
        assert items.ask(DumpRequest("again", (name(items),))).state is RequestState.DONE
        worker.terminate()
        items.drain()
        check_equal(items.settings, written, [name(items)])
