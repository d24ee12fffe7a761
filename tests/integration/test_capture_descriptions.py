"""Comments and NOT NULL of real servers reach the chain, follow changes, and cost no dump."""

from __future__ import annotations

import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.services import Database
from tideline.contract.description import Description
from tideline.contract.open_state import OpenState, TableCondition
from tideline.planner import preview_plan

ITEMS, DETAILS = "public.items", 'public."Order Details"'
WORDS = 'it\'s what "they" paid;\n\\ é 🦆'


def description(pipeline: Pipeline[Database] | Pipeline[MysqlDatabase], table: str) -> Description:
    fingerprint = pipeline.table(table).description
    assert fingerprint is not None
    return pipeline.chain.read_description(fingerprint)


def cost(pipeline: Pipeline[Database] | Pipeline[MysqlDatabase], table: str) -> tuple[object, ...]:
    """What a change of comments must leave as it is."""
    state = pipeline.table(table)
    dumps = [f.seq for m in pipeline.manifests() for f in m.deletes_before if f.table == table]
    return (state.condition, state.reason, state.generation, dumps, pipeline.state().requests)


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    """A pipeline whose first dumps are done; no worker runs."""
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, w text)",
        "INSERT INTO items SELECT g, g, 'w' FROM generate_series(1, 30) g",
        f"COMMENT ON TABLE items IS {_quoted(WORDS)}",
        f"COMMENT ON COLUMN items.v IS {_quoted(WORDS)}",
        "COMMENT ON CONSTRAINT items_pkey ON items IS 'of something else'",
        'CREATE TABLE "Order Details" (id int PRIMARY KEY, "a b" text NOT NULL)'
        " PARTITION BY RANGE (id)",
        'CREATE TABLE part PARTITION OF "Order Details" FOR VALUES FROM (0) TO (1000)',
        "COMMENT ON TABLE part IS 'a part'",
        """COMMENT ON COLUMN "Order Details"."a b" IS 'spaced'""",
        """INSERT INTO "Order Details" VALUES (1, 'x')""",
    )
    made = pipeline_of(database)
    made.drain()
    return made


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_postgres_comments_and_not_null_are_in_the_chain(shop: Pipeline[Database]) -> None:
    assert description(shop, ITEMS) == Description(ITEMS, WORDS, {"v": WORDS}, ("id", "v"))
    assert description(shop, DETAILS) == Description(DETAILS, "", {"a b": "spaced"}, ("a b", "id"))
    planned = {one.table: one for one in preview_plan(shop.settings).descriptions}
    assert planned[ITEMS].not_null == ("id", "v")
    assert planned[ITEMS].columns == {"v": WORDS}


def test_postgres_comment_on_is_noticed_without_a_row_and_costs_nothing(
    shop: Pipeline[Database],
) -> None:
    before, other = cost(shop, ITEMS), shop.table(DETAILS).description
    schema, seq = shop.table(ITEMS).schema, shop.manifest().last_seq
    worker = shop.start()
    worker.wait_point("reading")
    shop.database.run(
        "COMMENT ON TABLE items IS NULL",
        "COMMENT ON COLUMN items.v IS ''",
        "COMMENT ON COLUMN items.w IS 'free text'",
        "ALTER TABLE items ALTER COLUMN v DROP NOT NULL, ALTER COLUMN w SET NOT NULL",
    )
    wanted = Description(ITEMS, "", {"w": "free text"}, ("id", "w"))

    def noticed(state: OpenState) -> bool:
        return state.tables[ITEMS].description == wanted.fingerprint

    shop.wait_state("it is noticed", noticed)
    shop.finish(worker)
    assert description(shop, ITEMS) == wanted
    assert shop.table(DETAILS).description == other
    assert cost(shop, ITEMS) == before
    assert (shop.table(ITEMS).schema, shop.manifest().last_seq) == (schema, seq), "no event of it"
    shop.drain()
    assert shop.table(ITEMS).description == wanted.fingerprint, "the next worker sees no news"
    assert cost(shop, ITEMS) == before


def test_postgres_a_null_that_may_come_is_known_before_its_row(shop: Pipeline[Database]) -> None:
    """The log describes the table before its next row, whatever the rounds over the catalog do."""
    shop.database.run(
        "ALTER TABLE items ALTER COLUMN v DROP NOT NULL", "INSERT INTO items VALUES (31, NULL, 'w')"
    )
    shop.drain()
    (with_row,) = [
        manifest
        for manifest in shop.manifests()
        if any(part.table == ITEMS and part.operations.get("c") for part in manifest.parts)
    ]
    assert with_row.state is not None
    found = with_row.state.tables[ITEMS].description
    assert found is not None
    assert shop.chain.read_description(found).not_null == ("id",)


@pytest.fixture
def mysql_shop(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> Pipeline[MysqlDatabase]:
    mysql_database.run(
        "CREATE TABLE items (id INT PRIMARY KEY, v INT NOT NULL COMMENT 'how many', w VARCHAR(50))"
        f" COMMENT = {_literal(WORDS)}",
        "INSERT INTO items VALUES (1, 1, 'w'), (2, 2, NULL)",
    )
    made = pipeline_of(mysql_database)
    made.drain()
    return made


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def test_mysql_comments_and_not_null(mysql_shop: Pipeline[MysqlDatabase]) -> None:
    shop = mysql_shop
    items = f"{shop.database.name}.items"
    first = description(shop, items)
    assert first == Description(items, WORDS.replace("🦆", "?"), {"v": "how many"}) or (
        first == Description(items, WORDS, {"v": "how many"})
    )
    (planned,) = preview_plan(shop.settings).descriptions
    assert planned.not_null == ("id", "v")
    before = cost(shop, items)
    worker = shop.start()
    worker.wait_point("reading")
    shop.database.run(
        "ALTER TABLE items COMMENT = ''",
        "ALTER TABLE items MODIFY v INT NULL COMMENT 'perhaps', ALGORITHM = INPLACE",
        "INSERT INTO items VALUES (3, NULL, 'x')",
    )
    wanted = Description(items, "", {"v": "perhaps"})

    def noticed(state: OpenState) -> bool:
        return state.tables[items].description == wanted.fingerprint

    shop.wait_state("it is noticed", noticed)
    shop.finish(worker)
    assert cost(shop, items) == before
    assert shop.table(items).condition is TableCondition.ACTIVE
    (planned,) = preview_plan(shop.settings).descriptions
    assert (planned.not_null, planned.columns) == (("id",), {"v": "perhaps"})
