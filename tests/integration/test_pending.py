"""Values that no log and no dump has carried: named in the warehouse, asked for, and brought in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from devtools.demo.compare import compare
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.services import Database
from tideline.contract.layout import receipt_key
from tideline.contract.receipt import Receipt, encode_receipt, reread_requests
from tideline.contract.request import RequestState
from tideline.planner import pending_requests, plan_merge
from tideline.store.objects import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = "public.docs"


@pytest.fixture
def pipeline(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    """Rows that were there before capture, in a table that is not dumped at first."""
    database.run(
        "CREATE TABLE docs (id bigint, at timestamptz, code bytea, tag text, note text, body text,"
        " PRIMARY KEY (at, code, id))",
        "ALTER TABLE docs ALTER COLUMN body SET STORAGE EXTERNAL",
        r"""INSERT INTO docs SELECT g, '2024-02-29 23:59:59.000001+03'::timestamptz
        + g * interval '1 hour', '\x00ff5c'::bytea, 'o''clock', 'old', repeat(g || '-', 4000)
        FROM generate_series(1, 3) g""",
    )
    return pipeline_of(database, source={"initial": "log-only"})


@pytest.mark.timeout(300)
def test_they_are_read_again(pipeline: Pipeline[Database], spark: SparkSession) -> None:
    pipeline.drain()
    pipeline.database.run("UPDATE docs SET note = 'new'")
    pipeline.drain()
    first = merged(pipeline, spark, "first")
    assert (first.tables[0].inserted, first.tables[0].pending) == (3, 3)
    assert len(first.tables[0].pending_keys) == 3
    assert not compare(pipeline.database.dsn, pipeline.settings.warehouse, [DOCS]).equal

    # A job that died before it could write its receipt is run again, and finds all applied.
    again = merged(pipeline, spark, "first")
    assert again.tables[0].pending_keys == first.tables[0].pending_keys
    [request] = pending_requests(pipeline.settings)
    assert [request] == reread_requests(first)
    with pipeline.asking() as control_client:
        control_client.ask(request)
        control_client.ask(request)
    worker = pipeline.start()
    assert pipeline.final_answer(request.request_id).state is RequestState.DONE
    worker.terminate()
    second = merged(pipeline, spark, "second")
    assert pending_requests(pipeline.settings) == []
    assert (second.tables[0].rows_read, second.tables[0].pending) == (3, 0)
    found = compare(pipeline.database.dsn, pipeline.settings.warehouse, [DOCS])
    assert found.equal, found.lines()
    assert found.rows_equal == 3


def merged(pipeline: Pipeline[Database], spark: SparkSession, plan_id: str) -> Receipt:
    from tideline_spark.merge import run_plan

    receipt = run_plan(spark, plan_merge(pipeline.settings, plan_id=plan_id))
    key = receipt_key(pipeline.settings.pipeline, plan_id)
    open_store(pipeline.settings.store).put(key, encode_receipt(receipt))
    return receipt
