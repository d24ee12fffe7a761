"""Columns, attributes and keys that are replaced behind the log's back, and names that are ours."""

from __future__ import annotations

import psycopg2
import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.services import Database
from tests.support.checks import check_equal
from tideline.contract.open_state import TableCondition

T, GOOD = "public.t", "public.good"


def captured(
    database: Database, pipeline_of: PipelineFactory, *statements: str
) -> Pipeline[Database]:
    """A pipeline whose first dumps are done; no worker runs."""
    database.run(*statements, "CREATE TABLE good (id int PRIMARY KEY)")
    made = pipeline_of(database)
    made.drain()
    return made


@pytest.mark.parametrize(
    ("made", "changed"),
    [
        ("id int PRIMARY KEY, n int, m text", "ALTER TABLE t DROP n, ADD n int"),
        ("id int PRIMARY KEY, m text, n int", "ALTER TABLE t DROP n, ADD n int"),
        ("id int PRIMARY KEY, m text, n int", "ALTER TABLE t DROP n, ADD n int, ADD k int"),
        (
            "id int PRIMARY KEY, m text, n int",
            "ALTER TABLE t DROP n, ADD n int DEFAULT 7, ADD k int",
        ),
        (
            "id int PRIMARY KEY, n int, m int",
            "ALTER TABLE t RENAME n TO x; ALTER TABLE t RENAME m TO n; ALTER TABLE t RENAME x TO m",
        ),
    ],
)
def test_columns_that_only_keep_their_names(
    database: Database, pipeline_of: PipelineFactory, made: str, changed: str
) -> None:
    shop = captured(
        database,
        pipeline_of,
        f"CREATE TABLE t ({made})",
        "INSERT INTO t (id, n, m) VALUES (1, 10, '11'), (2, 20, '22')",
    )
    database.run(*changed.split("; "), "INSERT INTO t (id) VALUES (3)")
    shop.drain()
    check_equal(shop.settings, database, [T])


@pytest.mark.parametrize(
    "column", ["c", "c[]", "wrapped", "holds"], ids=["row", "array", "domain", "nested"]
)
@pytest.mark.parametrize("changed", ["ADD ATTRIBUTE z int", "DROP ATTRIBUTE b"])
def test_attributes_of_a_row_type(
    database: Database, pipeline_of: PipelineFactory, column: str, changed: str
) -> None:
    value = {"c[]": "ARRAY[ROW(1, 'x')]::c[]", "holds": "ROW(ROW(1, 'x')::c, 2)"}
    shop = captured(
        database,
        pipeline_of,
        "CREATE TYPE c AS (a int, b text)",
        "CREATE DOMAIN wrapped AS c",
        "CREATE TYPE holds AS (c c, n int)",
        f"CREATE TABLE t (id int PRIMARY KEY, v {column})",
        f"INSERT INTO t VALUES (1, {value.get(column, 'ROW(1, $$x$$)')})",  # noqa: S608
    )
    database.run(f"ALTER TYPE c {changed}")
    shop.drain()
    check_equal(shop.settings, database, [T])


@pytest.mark.parametrize("name", ["_tl_seq", "_tl_op", "_TL_Ts"])
def test_a_column_with_a_name_of_ours_parks_its_table_alone(
    database: Database, pipeline_of: PipelineFactory, name: str
) -> None:
    shop = captured(
        database, pipeline_of, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"
    )
    database.run(
        f'ALTER TABLE t ADD "{name}" int',
        "INSERT INTO t VALUES (2, 2)",
        "INSERT INTO good VALUES (5)",
    )
    shop.drain()
    state = shop.table(T)
    assert state.condition is TableCondition.QUARANTINED
    assert name in str(state.reason)
    check_equal(shop.settings, database, [GOOD])
    database.run(f'ALTER TABLE t RENAME "{name}" TO fine')
    shop.drain()
    check_equal(shop.settings, database, [T, GOOD])


@pytest.mark.parametrize(
    ("spoil", "mend"),
    [
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id)"),
        ("ALTER TABLE t REPLICA IDENTITY NOTHING", "ALTER TABLE t REPLICA IDENTITY DEFAULT"),
    ],
)
def test_a_table_that_loses_its_key_can_still_be_written(
    database: Database, pipeline_of: PipelineFactory, spoil: str, mend: str
) -> None:
    """With one that has no identity in a publication, the server refuses updates of it."""
    shop = captured(
        database,
        pipeline_of,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a')",
    )
    database.run(spoil)
    with pytest.raises(psycopg2.Error, match="does not have a replica identity"):
        database.run("UPDATE t SET v = 'b'")
    shop.drain()
    assert shop.table(T).condition is TableCondition.QUARANTINED
    database.run("UPDATE t SET v = 'b'", mend)
    shop.drain()
    assert shop.table(T).condition is TableCondition.ACTIVE
    check_equal(shop.settings, database, [T])


def test_a_value_that_begins_like_a_file(database: Database, pipeline_of: PipelineFactory) -> None:
    """The first bytes of a chunk are a value's, not a mark of their encoding."""
    shop = captured(
        database,
        pipeline_of,
        "CREATE TABLE t (name text PRIMARY KEY, v text)",
        "INSERT INTO t SELECT E'\\uFEFF' || g, E'\\uFEFF' FROM generate_series(1, 9) g",
        "INSERT INTO t VALUES (E'\\uFEFF', E'\\uFEFF\\uFEFF')",
    )
    check_equal(shop.settings, database, [T])
