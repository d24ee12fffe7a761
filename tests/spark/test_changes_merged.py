"""Tables whose columns change at a real server, through its log into the warehouse: equal to it.

Nothing in between is told what the steps are: the worker finds them in the log and the catalog, and
the merges take them, wherever a plan ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.sources import ConformingSource
from tideline.contract.layout import table_path
from tideline.contract.receipt import Outcome
from tideline.contract.schema import parse_table
from tideline.planner import plan_merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "INSERT INTO {t} (id, a, b, t) VALUES (1, 1, 10, 'x'), (2, 2, 20, 'y'), (3, NULL, 30, '')"
CASES = {
    "several": (
        "ALTER TABLE {t} RENAME COLUMN a TO c",
        "ALTER TABLE {t} DROP COLUMN b",
        "ALTER TABLE {t} RENAME COLUMN id TO number",
        "{wide}",
        "INSERT INTO {t} (number, c) VALUES (50, 5000000000)",
    ),
    "swap": (
        "ALTER TABLE {t} RENAME COLUMN a TO x",
        "ALTER TABLE {t} RENAME COLUMN b TO a",
        "INSERT INTO {t} (id, a) VALUES (50, 5)",
        "ALTER TABLE {t} RENAME COLUMN x TO b",
    ),
    "fill": (
        "ALTER TABLE {t} ADD COLUMN c INT DEFAULT 7",
        "INSERT INTO {t} (id, c) VALUES (50, NULL)",
        "ALTER TABLE {t} ADD COLUMN d VARCHAR(20) DEFAULT 'it''s'",
        "UPDATE {t} SET d = NULL WHERE id = 2",
    ),
    "again": (
        "ALTER TABLE {t} DROP COLUMN b",
        "INSERT INTO {t} (id, a) VALUES (50, 5)",
        "ALTER TABLE {t} ADD COLUMN b VARCHAR(10) DEFAULT 'z'",
    ),
    "most": (
        "ALTER TABLE {t} RENAME COLUMN b TO c",
        "ALTER TABLE {t} ADD COLUMN b INT DEFAULT 4",
        "DELETE FROM {t} WHERE id = 1",
        "ALTER TABLE {t} DROP COLUMN t",
        "UPDATE {t} SET c = 33 WHERE id = 3",
        "ALTER TABLE {t} RENAME COLUMN a TO t",
    ),
}
"""What is done to a table with `ROWS`: ``one``, between two merges, or ``each`` in a merge of its
own."""
MODES = {"h": "history", "s": "soft_deletes"}
FORMS = {
    "public": ("h_each_most", "each_swap", "s_one_swap"),
    "": ("s_each_most", "h_one_swap"),
}
"""Tables of other modes, and with a merge for each statement; by the kind of source."""
WIDE = {"public": "ALTER TABLE {t} ALTER COLUMN c TYPE BIGINT"}


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    "other_forms", [False, pytest.param(True, marks=pytest.mark.long)], ids=["once", "forms"]
)
@pytest.mark.parametrize("conforming", ["postgres", "mariadb"], indirect=True)
def test_columns_follow_the_source(
    conforming: ConformingSource,
    pipeline_of: PipelineFactory,
    spark: SparkSession,
    other_forms: bool,
) -> None:
    """Tables are named by what is done to them: each case once, or in its `FORMS`."""
    schema = conforming.full_name("t").rpartition(".")[0]
    once = tuple(f"one_{case}" for case in CASES)
    tables = FORMS.get(schema, FORMS[""]) if other_forms else once
    modes = {f"*.{form}_*": {"mode": mode} for form, mode in MODES.items()}
    pipeline = pipeline_of(conforming, tables=modes)
    for table in tables:
        conforming.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT, t VARCHAR(20))",
            ROWS.format(t=table),
        )
    pipeline.drain()
    merge(spark, pipeline, "first")
    wide = WIDE.get(schema, "ALTER TABLE {t} MODIFY COLUMN c BIGINT")
    for at in range(max(map(len, CASES.values())) if other_forms else 1):
        changed = []
        for table in tables:
            statements = CASES[table.rpartition("_")[2]]
            due = statements[at : at + 1]
            if "one_" in table:
                due = statements if at == 0 else ()
            conforming.run(*(one.format(t=table, wide=wide.format(t=table)) for one in due))
            changed += [table] if due else []
        pipeline.drain()
        merge(spark, pipeline, f"then-{at}")
        compare(spark, pipeline, conforming, changed)


def merge(spark: SparkSession, pipeline: Pipeline[ConformingSource], name: str) -> None:
    """Merge until nothing waits; dumps that became due meanwhile have been drained."""
    from tideline_spark.merge import run_plan

    plan = plan_merge(pipeline.settings, plan_id=name)
    assert not plan.delayed, plan.delayed
    receipt = run_plan(spark, plan)
    wrong = [one for one in receipt.tables if one.outcome is not Outcome.APPLIED]
    assert not wrong, wrong


def compare(
    spark: SparkSession,
    pipeline: Pipeline[ConformingSource],
    source: ConformingSource,
    tables: Sequence[str],
) -> None:
    """The rows that the source has now, column by column."""
    differ = {}
    session = spark.newSession()
    for table in tables:
        name = source.full_name(table)
        state = pipeline.table(name)
        assert state.schema is not None
        schema = pipeline.chain.read_schema(state.schema)
        path = table_path(pipeline.settings.warehouse.url, parse_table(name))
        held = session.read.format("delta").load(path)
        live = {"h_": "_tl_current", "s_": "NOT _tl_deleted"}.get(table[:2], "true")
        texts = [f"string(`{column}`)" for column in schema.column_names]
        found = [tuple(row) for row in held.where(live).selectExpr(*texts).collect()]
        expected = sorted(source.texts(schema), key=lambda row: tuple(map(str, row)))
        if sorted(found, key=lambda row: tuple(map(str, row))) != expected:
            differ[table] = (schema.column_names, found, expected)
    assert not differ, differ
