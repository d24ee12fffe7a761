"""Dumps by a real worker, with something happening at an exact place of a chunk's window.

The worker stops itself at a named point; the test changes the source meanwhile and lets it go on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.fixtures.capture import IDLE_S, Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.services import Database
from tests.support.checks import Captured, check_equal
from tideline.contract.open_state import TableCondition
from tideline.contract.request import DumpRequest, RequestState, TimeRange

ITEMS = "public.items"
ROWS = 50
SCHEMA = (
    "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, at timestamp, doc text)",
    "ALTER TABLE items ALTER COLUMN doc SET STORAGE EXTERNAL",
    "INSERT INTO items SELECT g, g, '2024-01-01'::timestamp + g * interval '1 h',"
    " repeat('d' || g, 1500) FROM generate_series(1, 50) g",
)


@pytest.fixture
def items(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    database.run(*SCHEMA)
    # With a pause no chunk is read ahead: a worker that is stopped then holds no lock.
    return pipeline_of(database, capture={"chunk_rows": 20, "delay_ms": 1})


def dump_with(
    items: Pipeline[Database], point: str, meanwhile: Callable[[WorkerProcess], None]
) -> Captured:
    """The first dump, stopped at ``point`` while ``meanwhile`` happens; ends equal and whole."""
    worker = items.start(stop=point, until_idle_s=IDLE_S)
    worker.wait_stopped()
    name, _, count = point.partition(":")
    assert worker.points()[name] == int(count)
    meanwhile(worker)
    worker.signal(signal.SIGCONT)
    assert worker.wait() == 0, worker.output()[-3000:]
    assert items.state().requests == ()
    return check_equal(items.settings, items.database, [ITEMS])


@pytest.mark.parametrize(
    "statements",
    [
        ["UPDATE items SET v = v + 1 WHERE id % 3 = 0"],
        ["UPDATE items SET v = 0, doc = 'short' WHERE id = 7", "DELETE FROM items WHERE id < 5"],
        ["DELETE FROM items WHERE id = 3", "INSERT INTO items VALUES (3, 3, NULL, NULL)"],
        ["UPDATE items SET id = id + 100 WHERE id IN (2, 4, 30, 49)"],
        ["UPDATE items SET id = id - 100 WHERE id IN (2, 4, 30, 49)"],
        ["UPDATE items SET id = -1 WHERE id = 45", "UPDATE items SET id = 46 WHERE id = -1;"],
        ["TRUNCATE items"],
        ["TRUNCATE items", "INSERT INTO items VALUES (1, 1, NULL, 'after')"],
        ["BEGIN; UPDATE items SET v = -1; ROLLBACK", "UPDATE items SET v = v WHERE id = 20"],
    ],
    ids=lambda statements: statements[0][:40].replace(" ", "-"),
)
def test_changes_in_a_window(items: Pipeline[Database], statements: list[str]) -> None:
    if statements[-1].endswith(";"):
        items.database.run("DELETE FROM items WHERE id = 46")
    dump_with(items, "between-watermarks:2", lambda worker: items.database.run(*statements))
    assert items.table(ITEMS).condition is TableCondition.ACTIVE


def test_unchanged_large_values_of_a_window_come_as_partial_rows(items: Pipeline[Database]) -> None:
    captured = dump_with(
        items,
        "between-watermarks:1",
        lambda worker: items.database.run("UPDATE items SET v = v + 1 WHERE id <= 10"),
    )
    partial = [c for c in captured.table(ITEMS) if c.op == "r" and set(c.values) == {"doc"}]
    assert sorted(int(str(change.key[0])) for change in partial) == list(range(1, 11))


def test_rows_that_move_to_where_the_dump_has_been_are_read_again(
    items: Pipeline[Database],
) -> None:
    captured = dump_with(
        items,
        "between-chunks:3",
        lambda worker: items.database.run("UPDATE items SET id = -id WHERE id IN (45, 46, 50)"),
    )
    moved = [c for c in captured.table(ITEMS) if c.before is not None]
    assert moved
    assert all("doc" not in change.values for change in moved)
    assert any(name.startswith("reread:") for m in captured.manifests for name in m.accepted)


class TestRewritingAlter:
    """Committed at each step of a chunk; a COPY begun before it would find the table empty."""

    ALTER = "ALTER TABLE items ALTER COLUMN v TYPE int USING v + 1000"

    @pytest.mark.parametrize(
        "point",
        ["between-chunks:2", "between-watermarks:1", "between-watermarks:2", "between-chunks:3"],
    )
    def test_between_the_steps(self, items: Pipeline[Database], point: str) -> None:
        dump_with(items, point, lambda worker: items.database.run(self.ALTER))
        self.check(items)

    def test_between_the_low_mark_and_the_snapshot(self, items: Pipeline[Database]) -> None:
        """The ALTER holds the table when the chunk asks for it, and commits while it waits."""
        connection = items.database.connect()
        connection.autocommit = False

        def alter(worker: WorkerProcess) -> None:
            with connection.cursor() as cursor:
                cursor.execute(self.ALTER)
            worker.signal(signal.SIGCONT)
            poll("the chunk waits for the table", lambda: waits_for_items(items.database))
            connection.commit()

        dump_with(items, "between-chunks:2", alter)
        connection.close()
        self.check(items)

    def check(self, items: Pipeline[Database]) -> None:
        captured = check_equal(items.settings, items.database, [ITEMS])
        finished = [m.manifest_number for m in captured.manifests if m.deletes_before]
        assert finished
        assert [len(captured.until(number).rows(ITEMS)) for number in finished] == (
            [ROWS] * len(finished)
        )
        assert items.table(ITEMS).condition is TableCondition.ACTIVE


def waits_for_items(database: Database) -> bool:
    waiting = (
        "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'items'::regclass"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return bool(database.rows(waiting))


class TestRequests:
    """Requests to a worker that runs."""

    def test_given_keys(self, items: Pipeline[Database]) -> None:
        """Keys that the source lacks become deletes; the others are read, whatever they were."""
        worker = items.start()
        items.wait_state("the first dump ends", lambda s: ITEMS in s.tables and not s.requests)
        keys = tuple((str(key),) for key in (7, 1, 999, -3, 50))
        answer = items.ask(DumpRequest("repair-1", ("public.items",), keys=keys, chunk_rows=2))
        assert answer.state is RequestState.DONE, answer
        number = answer.manifest_number
        assert number is not None
        assert answer.tables[0].rows == len(keys)
        joined = items.ask(DumpRequest("repair-1", ("public.items",), keys=keys, chunk_rows=2))
        assert joined.manifest_number == number
        worker.terminate()
        captured = check_equal(items.settings, items.database, [ITEMS])
        accepted = [m for m in captured.manifests if "repair-1" in m.accepted]
        assert len(accepted) == 1
        first = accepted[0].first_seq
        found = [(c.op, int(str(c.key[0]))) for c in captured.table(ITEMS) if c.seq >= first]
        assert sorted(found) == [("d", -3), ("d", 999), ("r", 1), ("r", 7), ("r", 50)]

    def test_a_time_range(self, items: Pipeline[Database]) -> None:
        worker = items.start()
        items.wait_state("the first dump ends", lambda s: ITEMS in s.tables and not s.requests)
        span = TimeRange("at", "2024-01-01 10:00", "2024-01-01 20:00")
        request = DumpRequest("backfill-1", ("public.items",), time=span, chunk_rows=4)
        assert items.ask(request).state is RequestState.DONE
        wrong = DumpRequest("backfill-2", ("public.items",), time=TimeRange("nope", "1", "2"))
        refused = items.ask(wrong)
        assert refused.state is RequestState.FAILED
        assert "no column 'nope'" in str(refused.error)
        worker.terminate()
        captured = check_equal(items.settings, items.database, [ITEMS])
        accepted = next(m for m in captured.manifests if "backfill-1" in m.accepted)
        rows = [int(str(c.key[0])) for c in captured.table(ITEMS) if c.seq >= accepted.first_seq]
        assert rows == list(range(10, 20))
        deletes_before = {
            delete_before.request_id
            for m in captured.manifests
            for delete_before in m.deletes_before
        }
        assert not deletes_before & {"backfill-1", "backfill-2"}


def test_a_request_that_was_there_before_the_worker_is_served(items: Pipeline[Database]) -> None:
    """It waits until the first look at the catalog says which tables there are."""
    with items.asking() as control_client:
        control_client.ask(DumpRequest("early", (ITEMS,), keys=(("7",),)))
    worker = items.start()
    answer = items.final_answer("early")
    worker.terminate()
    assert (answer.state, answer.error) == (RequestState.DONE, None)
