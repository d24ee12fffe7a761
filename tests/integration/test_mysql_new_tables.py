# ruff: noqa: S608  statements are made of constants and our own names
"""Tables that come to be while a pipeline runs: what the binlog itself says of their beginning."""

from __future__ import annotations

from typing import Any

from tests.conformance.test_live_tables import rows_of
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import MysqlDatabase
from tideline.contract.open_state import REMOVED, CapturedFrom, TableCondition

SLOW_ROUNDS = {"catalog_interval_s": 30.0}
"""Nothing but the log tells of a table in time."""
PAIR = "(id INT PRIMARY KEY, v INT)"


def ops(pipeline: Pipeline[MysqlDatabase], table: str) -> list[tuple[str, int | None, Any]]:
    """Operation, key and ``v`` of each change of a table, as the parts hold them."""
    name = f"{pipeline.database.name}.{table}"
    return [(row["_tl_op"], row["id"], row.get("v")) for row in rows_of(pipeline, name)]


def begun(pipeline: Pipeline[MysqlDatabase], table: str) -> CapturedFrom:
    """Where the capture of a table began."""
    found = pipeline.table(f"{pipeline.database.name}.{table}").captured_from
    assert found is not None
    return found


def test_tables_that_others_rows_are_in_from_the_beginning(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """Made of a query, or renamed from a table that is not captured: of the one all rows are in the
    log, of the other those from the renaming on."""
    shop = mysql_database
    shop.run(
        f"CREATE TABLE old {PAIR}",
        "INSERT INTO old VALUES (1, 10), (2, 20)",
        f"CREATE TABLE stage_a {PAIR}",
        "INSERT INTO stage_a VALUES (1, 10)",
        f"CREATE TABLE stage_b {PAIR}",
    )
    source = {"initial": "log-only", "exclude": ["*.stage_*"]}
    pipeline = pipeline_of(shop, source=source)
    pipeline.drain()
    query = ["CREATE TABLE chosen (PRIMARY KEY (id)) SELECT id, v FROM old"]
    if shop.flavour == "mysql8":  # With GTIDs it refuses that, before 8.0.21.
        query = [f"CREATE TABLE chosen {PAIR}", "INSERT INTO chosen SELECT id, v FROM old"]
    shop.run(
        *query,
        "RENAME TABLE stage_a TO renamed, stage_b TO stage_c",
        "INSERT INTO renamed VALUES (2, 20)",
        "ALTER TABLE stage_c RENAME TO altered",
        "INSERT INTO altered VALUES (3, 30)",
        "UPDATE chosen SET v = 11 WHERE id = 1",
    )
    pipeline.drain()
    assert ops(pipeline, "chosen") == [("c", 1, 10), ("c", 2, 20), ("u", 1, 11)]
    assert ops(pipeline, "renamed") == [("c", 2, 20)]
    assert ops(pipeline, "altered") == [("c", 3, 30)]
    assert begun(pipeline, "chosen").created
    assert not begun(pipeline, "renamed").created
    assert not begun(pipeline, "altered").created
    assert pipeline.table(f"{shop.name}.renamed").complete_seq is None


def test_a_worker_killed_between_a_table_and_its_rows(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """That the table was made is durable: its rows are its first ones to whoever comes after."""
    shop = mysql_database
    name = f"{shop.name}.fresh"
    shop.run(f"CREATE TABLE old {PAIR}")
    pipeline = pipeline_of(shop, capture=SLOW_ROUNDS)
    worker = pipeline.start()
    pipeline.wait_state("it looks", lambda state: f"{shop.name}.old" in state.tables)
    shop.run(f"CREATE TABLE fresh {PAIR}")
    state = pipeline.wait_state("it is in the chain", lambda state: name in state.begun)
    worker.kill()
    assert name not in state.tables
    shop.run("INSERT INTO fresh VALUES (1, 10)")
    pipeline.drain()
    assert ops(pipeline, "fresh") == [("c", 1, 10)]
    assert begun(pipeline, "fresh") == state.begun[name]
    assert pipeline.state().begun == {}


def test_a_table_that_was_gone_and_is_made_again(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """It is another table, whose rows are taken from the first one on."""
    shop = mysql_database
    name = f"{shop.name}.again"
    shop.run(f"CREATE TABLE again {PAIR}", "INSERT INTO again VALUES (1, 10)")
    pipeline = pipeline_of(shop)
    pipeline.drain()
    shop.run("DROP TABLE again")
    pipeline.drain()
    assert pipeline.table(name).reason == REMOVED
    shop.run(f"CREATE TABLE again {PAIR}", "INSERT INTO again VALUES (7, 70)")
    pipeline.drain()
    state = pipeline.table(name)
    assert (state.condition, state.generation) == (TableCondition.ACTIVE, 1)
    assert [one for one in ops(pipeline, "again") if one[0] == "c"] == [("c", 7, 70)]


def test_what_cannot_be_captured_is_not_from_its_creation_either(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """A table without a key is quarantined, by name, and is none that was captured from its
    creation on once it has one; where the settings take it so, it is, and is not copied."""
    shop = mysql_database
    shop.run(f"CREATE TABLE old {PAIR}")
    tables = {f"{shop.name}.logged": {"mode": "append"}}
    pipeline = pipeline_of(shop, tables=tables)
    pipeline.drain()
    for table in ("bare", "logged", "keyed"):
        shop.run(f"CREATE TABLE {table} (id INT NOT NULL, v INT)")
        shop.run(f"INSERT INTO {table} VALUES (1, 10), (1, 10)")
    shop.run("DELETE FROM keyed LIMIT 1", "ALTER TABLE keyed ADD PRIMARY KEY (id)")
    shop.run("INSERT INTO keyed VALUES (2, 20)")
    pipeline.drain()
    bare = pipeline.table(f"{shop.name}.bare")
    assert (bare.condition, bare.captured_from) == (TableCondition.QUARANTINED, None)
    assert bare.reason == "it has no primary key"
    assert ops(pipeline, "logged") == [("c", 1, 10), ("c", 1, 10)]
    assert begun(pipeline, "logged").created
    assert not begun(pipeline, "keyed").created
    assert [one for one in ops(pipeline, "keyed") if one[0] == "r"] == [("r", 1, 10), ("r", 2, 20)]


def test_changes_that_a_foreign_key_carries_over_are_waited_for(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """Before MySQL 9.6 the log does not hold them, and only a look at the catalog tells whose they
    are: a child table is dumped, though the log has its creation."""
    shop = mysql_database
    shop.run(f"CREATE TABLE parent {PAIR}", "INSERT INTO parent VALUES (1, 10), (2, 20)")
    pipeline = pipeline_of(shop, source={"cascades": "redump"})
    pipeline.drain()
    shop.run(
        "CREATE TABLE child (id INT PRIMARY KEY, v INT,"
        " FOREIGN KEY (v) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
        "DELETE FROM parent WHERE id = 1",
    )
    pipeline.drain()
    if shop.flavour == "mysql9":
        assert begun(pipeline, "child").created
        assert ops(pipeline, "child") == [("c", 1, 1), ("c", 2, 2), ("d", 1, None)]
        return
    assert not begun(pipeline, "child").created
    assert ("r", 2, 2) in ops(pipeline, "child")
    state = pipeline.table(f"{shop.name}.child")
    assert (state.condition, state.complete_seq is None) == (TableCondition.ACTIVE, False)
