"""Changes of the source's schema, and what becomes of the table."""

from __future__ import annotations

import psycopg2
import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory, poll
from tests.fixtures.services import Database
from tests.support.checks import check_equal
from tideline.contract.open_state import TableCondition
from tideline.contract.request import DumpRequest, RequestState

ITEMS, OTHER = "public.items", "public.other"
SCHEMA = (
    "CREATE TABLE items (id int PRIMARY KEY, v int)",
    "INSERT INTO items SELECT g, g FROM generate_series(1, 30) g",
    "CREATE TABLE other (id int PRIMARY KEY, v text)",
    "INSERT INTO other VALUES (1, 'one')",
)


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    """A pipeline whose first dumps are done; no worker runs."""
    database.run(*SCHEMA)
    made = pipeline_of(database)
    made.drain()
    assert {name: made.table(name).condition for name in (ITEMS, OTHER)} == {
        ITEMS: TableCondition.ACTIVE,
        OTHER: TableCondition.ACTIVE,
    }
    return made


def dumps_of(shop: Pipeline[Database], table: str) -> list[int]:
    """The floors of finished whole dumps of ``table``."""
    return [f.seq for m in shop.manifests() for f in m.deletes_before if f.table == table]


def test_a_new_table_appears(shop: Pipeline[Database]) -> None:
    worker = shop.start()
    worker.wait_point("reading")
    shop.database.run(
        "CREATE TABLE late (a text, b date, PRIMARY KEY (b, a))",
        "INSERT INTO late VALUES ('x', '2024-02-29'), ('y', '2024-02-29')",
    )
    shop.wait_state("it is taken up", lambda state: "public.late" in state.tables)
    shop.database.run("INSERT INTO late VALUES ('z', '2024-03-01')")
    worker.terminate()
    shop.drain()
    check_equal(shop.settings, shop.database, [ITEMS, OTHER, "public.late"])
    assert len(dumps_of(shop, "public.late")) == 1


def test_a_transaction_older_than_the_publication_is_waited_for(shop: Pipeline[Database]) -> None:
    """What it did to the table before the table was published never comes through the log."""
    shop.database.run("CREATE TABLE late (id int PRIMARY KEY)")
    older = psycopg2.connect(shop.database.dsn)
    backend = older.get_backend_pid()
    with older.cursor() as cursor:
        cursor.execute("INSERT INTO late VALUES (1)")
    worker = shop.start()
    control_client = shop.control_client()
    shop.wait_state("the table is taken up", lambda state: "public.late" in state.tables)

    def named() -> bool:
        answers = [control_client.answer(item.request.request_id) for item in shop.state().requests]
        waiting = [table.waiting for answer in answers if answer for table in answer.tables]
        return any(f"process {backend}" in str(reason) for reason in waiting)

    poll("the dump says what it waits for", named)
    shop.database.run("INSERT INTO late VALUES (2)")
    with older.cursor() as cursor:
        cursor.execute("INSERT INTO late VALUES (3)")
    older.commit()
    older.close()
    control_client.close()
    worker.terminate()
    shop.drain()
    check_equal(shop.settings, shop.database, [ITEMS, OTHER, "public.late"])


def test_an_empty_table_is_known(shop: Pipeline[Database]) -> None:
    shop.database.run("CREATE TABLE late (a text PRIMARY KEY)")
    shop.drain()
    assert shop.table("public.late").schema is not None
    check_equal(shop.settings, shop.database, ["public.late"])


def test_a_nullable_column_needs_no_dump(shop: Pipeline[Database]) -> None:
    worker = shop.start()
    worker.wait_point("reading")
    shop.database.run("ALTER TABLE items ADD COLUMN note text")
    shop.database.run("UPDATE items SET note = 'n' WHERE id = 3")
    worker.terminate()
    shop.drain()
    assert len(dumps_of(shop, ITEMS)) == 1
    assert shop.table(ITEMS).condition is TableCondition.ACTIVE
    events = [e for m in shop.manifests() for e in m.schema_events if e.table == ITEMS]
    assert [event.verdict for event in events] == ["neutral", "neutral"]
    schema = shop.chain.read_schema(str(shop.table(ITEMS).schema))
    assert schema.column_names == ("id", "v", "note")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE items ALTER COLUMN v TYPE bigint USING v * 2",
        "ALTER TABLE items ALTER COLUMN v TYPE int USING v * 2",
        "ALTER TABLE items DROP COLUMN v, ADD COLUMN v int DEFAULT 9",
        "CREATE TABLE swap (LIKE items INCLUDING ALL); INSERT INTO swap SELECT id + 1, v FROM"
        " items; ALTER TABLE items RENAME TO old; ALTER TABLE swap RENAME TO items; DROP TABLE old",
        "DROP TABLE items; CREATE TABLE items (id int PRIMARY KEY, v int);"
        " INSERT INTO items VALUES (5, 55)",
    ],
    ids=[
        "widened",
        "rewritten",
        "replaced",
        "swapped",
        "re-created",
    ],
)
@pytest.mark.parametrize("live", [True, False], ids=["while-it-runs", "while-it-is-down"])
def test_data_that_changed_without_row_events_is_dumped_again(
    shop: Pipeline[Database], statement: str, live: bool
) -> None:
    if live:
        worker = shop.start()
        worker.wait_point("reading")
        shop.database.run(statement)
        shop.wait_state("a dump began or ended", lambda state: len(dumps_of(shop, ITEMS)) > 1)
        shop.database.run("INSERT INTO items (id) VALUES (1000)")
        worker.terminate()
    else:
        shop.database.run(statement, "INSERT INTO items (id) VALUES (1000)")
    shop.drain()
    captured = check_equal(shop.settings, shop.database, [ITEMS, OTHER])
    assert shop.table(ITEMS).condition is TableCondition.ACTIVE
    assert len(dumps_of(shop, ITEMS)) == 2
    assert len(dumps_of(shop, OTHER)) == 1
    accepted = [name for manifest in captured.manifests for name in manifest.accepted]
    assert sum(name.startswith("unproven:") for name in accepted) == 1


def test_an_incompatible_change_blocks_until_a_full_dump(shop: Pipeline[Database]) -> None:
    worker = shop.start()
    worker.wait_point("reading")
    shop.database.run("ALTER TABLE items ALTER COLUMN v TYPE text USING 'v' || v")
    shop.database.run("UPDATE items SET v = 'changed' WHERE id = 3")
    state = shop.wait_state(
        "the table is blocked", lambda s: s.tables[ITEMS].condition is TableCondition.SCHEMA_BLOCKED
    )
    since = state.tables[ITEMS].since_seq
    events = [e for m in shop.manifests() for e in m.schema_events if e.table == ITEMS]
    assert (events[-1].seq, events[-1].verdict) == (since, "incompatible")
    assert "v integer → text" in str(state.tables[ITEMS].reason)
    answer = shop.ask(DumpRequest("again", ("public.items",)))
    assert answer.state is RequestState.DONE, answer
    worker.terminate()
    table = shop.table(ITEMS)
    assert (table.condition, table.generation) == (TableCondition.ACTIVE, 1)
    assert since is not None
    assert table.generation_seq >= since
    check_equal(shop.settings, shop.database, [ITEMS, OTHER])


def test_a_table_without_a_key_is_quarantined_and_taken_up_once_it_has_one(
    shop: Pipeline[Database],
) -> None:
    worker = shop.start()
    worker.wait_point("reading")
    shop.database.run("CREATE TABLE bare (a int, b int)", "INSERT INTO bare VALUES (1, 1), (2, 2)")
    state = shop.wait_state("it is quarantined", lambda s: "public.bare" in s.tables)
    quarantined = state.tables["public.bare"]
    assert quarantined.condition is TableCondition.QUARANTINED
    assert "no key" in str(quarantined.reason)
    assert "ADD PRIMARY KEY" in str(quarantined.hint)
    shop.database.run("UPDATE bare SET b = 3", "UPDATE items SET v = -1 WHERE id = 1")
    shop.database.run("ALTER TABLE bare ADD PRIMARY KEY (a)", "UPDATE bare SET b = 4 WHERE a = 1")
    shop.wait_state(
        "it is taken up",
        lambda s: s.tables["public.bare"].condition is not TableCondition.QUARANTINED,
    )
    shop.database.run("UPDATE bare SET b = 5 WHERE a = 2")
    worker.terminate()
    shop.drain()
    check_equal(shop.settings, shop.database, [ITEMS, OTHER, "public.bare"])
    assert shop.table("public.bare").condition is TableCondition.ACTIVE


def test_a_dropped_table_is_quarantined(shop: Pipeline[Database]) -> None:
    shop.database.run("DROP TABLE other", "UPDATE items SET v = -1 WHERE id = 1")
    shop.drain()
    quarantined = shop.table(OTHER)
    assert quarantined.condition is TableCondition.QUARANTINED
    assert "no longer in the source" in str(quarantined.reason)
    check_equal(shop.settings, shop.database, [ITEMS])


def test_a_table_that_was_gone_begins_again(shop: Pipeline[Database]) -> None:
    """Another table by the same name: the rows of the two are never mixed in one target."""
    worker = shop.start()
    worker.wait_point("reading")
    shop.database.run("DROP TABLE other")
    shop.wait_state("it is gone", lambda state: state.tables[OTHER].removed)
    shop.database.run("CREATE TABLE other (id int PRIMARY KEY, v text)")
    shop.database.run("INSERT INTO other VALUES (7, 'another')")
    shop.wait_state(
        "it is there again",
        lambda state: state.tables[OTHER].condition is TableCondition.ACTIVE,
    )
    worker.terminate()
    shop.drain()
    table = shop.table(OTHER)
    assert (table.condition, table.generation) == (TableCondition.ACTIVE, 1)
    check_equal(shop.settings, shop.database, [ITEMS, OTHER])


def test_a_quarantined_change_waits_for_somebody_and_an_applied_one_does_not(
    shop: Pipeline[Database], pipeline_of: PipelineFactory
) -> None:
    shop.database.run("ALTER TABLE items ALTER COLUMN v TYPE text USING 'v' || v")
    shop.drain()
    quarantined = shop.table(ITEMS)
    assert (quarantined.condition, quarantined.generation) == (TableCondition.SCHEMA_BLOCKED, 0)
    assert len(dumps_of(shop, ITEMS)) == 1
    tables = {ITEMS: {"on_change": {"retype": "apply"}}}
    other = pipeline_of(shop.database, tables=tables)
    other.drain()
    table = other.table(ITEMS)
    assert (table.condition, table.generation) == (TableCondition.ACTIVE, 1)
    check_equal(other.settings, other.database, [ITEMS, OTHER])


def test_a_key_that_its_type_cannot_hold_parks_its_table_only(shop: Pipeline[Database]) -> None:
    shop.database.run("CREATE TABLE days (day date PRIMARY KEY, v int)")
    shop.drain()
    shop.database.run(
        "INSERT INTO days VALUES ('2024-01-01', 1), ('infinity', 2)",
        "UPDATE items SET v = -1 WHERE id = 1",
    )
    shop.drain()
    quarantined = shop.table("public.days")
    assert quarantined.condition is TableCondition.QUARANTINED
    assert "key column day" in str(quarantined.reason)
    check_equal(shop.settings, shop.database, [ITEMS, OTHER])
    shop.database.run("DELETE FROM days WHERE day = 'infinity'")
    shop.drain()
    worker = shop.start()
    # A change of such a key that is read behind the request parks the table once more.
    shop.catch_up(worker)
    assert shop.ask(DumpRequest("days-1", ("public.days",))).state is RequestState.DONE
    worker.terminate()
    assert shop.table("public.days").condition is TableCondition.ACTIVE
    check_equal(shop.settings, shop.database, ["public.days"])


def test_a_partitioned_table_is_one_table(shop: Pipeline[Database]) -> None:
    shop.database.run(
        "CREATE TABLE facts (id int, day date, v int, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day)",
        "CREATE TABLE facts_1 PARTITION OF facts FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
        "CREATE TABLE facts_2 PARTITION OF facts FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')",
        "INSERT INTO facts SELECT g, '2024-01-01'::date + g, g FROM generate_series(1, 50) g",
    )
    shop.drain()
    shop.database.run(
        "UPDATE facts SET day = day + 20 WHERE id = 20",
        "DELETE FROM facts WHERE id = 40",
        "INSERT INTO facts VALUES (99, '2024-02-02', 99)",
    )
    shop.drain()
    check_equal(shop.settings, shop.database, ["public.facts"])
    shop.database.run("DROP TABLE facts_1")
    shop.drain()
    check_equal(shop.settings, shop.database, ["public.facts"])
    assert len(dumps_of(shop, "public.facts")) == 2
