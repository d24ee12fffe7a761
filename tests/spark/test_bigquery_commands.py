"""The commands around a merge on BigQuery tables: what they do there, and what they report."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from devtools.bigquery.jobs import BILLED_MIN
from tests.fixtures.bigquery import Dataset
from tests.fixtures.bigquery_place import PROJECT, with_bigquery
from tests.fixtures.blocks import roll_up
from tests.fixtures.capture import PipelineFactory
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.fixtures.services import Database
from tests.spark.test_verify import SharedJobs, verified
from tideline.contract.maintenance import MaintenanceOutcome
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, Receipt, decode_receipt, encode_receipt, run_of
from tideline.contract.request import DumpRequest
from tideline.contract.verification import VerificationOutcome
from tideline.planner import applied_state, begin_rebuild, next_step
from tideline.planner.consumers import register_warehouse
from tideline.planner.garbage import Fate, Garbage
from tideline.planner.maintaining import order_maintenance
from tideline.settings import Warehouse
from tideline_console.merge import _print_receipt
from tideline_spark.formats.registry import open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = "public.t"
SCHEMA = schema_of(T, {"id": "int64", "text": "string"}, ["id"])


def row(op: str, key: int, text: str = "x") -> Row:
    return Row(T, op, {"id": key, "text": text})


@pytest.fixture
def history(tmp_path: Path, request: pytest.FixtureRequest) -> History:
    """A table of three rows, not merged yet, whose target is to be in BigQuery."""
    place = with_bigquery(request, Warehouse(url=tmp_path.as_uri()))
    made = History(tmp_path, place=place)
    made.commit(Shaped(SCHEMA))
    made.commit(*(row("c", key) for key in (1, 2, 3)))
    return made


def url_of(history: History) -> str:
    return f"bigquery://tideline/{history.settings.warehouse.bigquery.dataset_prefix}/public/t"


def rows(history: History, spark: SparkSession) -> list[tuple[Any, ...]]:
    found = open_target(spark.newSession(), url_of(history)).rows().select("id", "text")
    return sorted(tuple(one) for one in found.collect())


def test_a_receipt_has_the_bytes_billed(
    history: History,
    spark: SparkSession,
    dataset: Dataset,
    capsys: pytest.CaptureFixture[str],
) -> None:
    history.merge(spark)
    history.commit(row("u", 1, "y"), row("d", 2))
    receipt = history.merge(spark)
    (table,) = receipt.tables
    assert (table.outcome, table.updated, table.deleted) == (Outcome.APPLIED, 1, 1)
    # A merge is one script at least, which writes the target and its log.
    assert table.bytes_billed >= 2 * BILLED_MIN
    (figures,) = run_of(receipt, 1).tables
    assert figures.bytes_billed == table.bytes_billed
    read = decode_receipt(_with_checksum(receipt))
    assert read.tables[0].bytes_billed == table.bytes_billed
    _print_receipt(receipt)
    assert f"{T}: billed for {table.bytes_billed / 1e6:,.1f} MB" in capsys.readouterr().out


def test_every_query_has_the_labels_and_the_limit(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Making log and table, merging, reading, and shortening the log."""
    from google.cloud.bigquery import Client

    asked = list[tuple[object, object]]()
    query = Client.query

    def recorded(client: Client, sql: str, job_config: Any = None, **how: Any) -> Any:
        asked.append((getattr(job_config, "labels", None), _limit_of(job_config)))
        return query(client, sql, job_config=job_config, **how)

    monkeypatch.setattr(Client, "query", recorded)
    place = Warehouse(url=tmp_path.as_uri())
    own = {"labels": {"team": "data"}, "maximum_bytes_billed": 1 << 34}
    given = place.model_copy(update={"bigquery": place.bigquery.model_copy(update=own)})
    made = History(tmp_path, place=with_bigquery(request, given))
    made.commit(Shaped(SCHEMA))
    made.commit(row("c", 1), row("c", 2))
    made.merge(spark)
    made.commit(row("u", 1, "y"))
    made.merge(spark)
    target = open_target(spark.newSession(), url_of(made))
    assert target.rows_of(["id"], ["id = 1"]).count() == 1
    target.files.vacuum(24.0)
    assert len(asked) > 5
    assert asked == [({"tideline": "true", "team": "data"}, 1 << 34)] * len(asked)


def _limit_of(config: Any) -> object:
    return getattr(config, "maximum_bytes_billed", None)


def _with_checksum(receipt: Receipt) -> bytes:
    from tideline.contract.document import with_checksum

    return with_checksum(encode_receipt(receipt))


def test_status_shows_a_table_and_what_others_changed(
    history: History, spark: SparkSession, dataset: Dataset
) -> None:
    history.merge(spark)
    merged = applied_state(history.settings).tables[T]
    assert (merged.state.value, merged.reason) == ("active", None)
    name = f"{history.settings.warehouse.bigquery.dataset_prefix}__public"
    dataset.client.query(f"UPDATE `{name}`.t SET text = 'theirs' WHERE id = 1").result()  # noqa: S608
    changed = applied_state(history.settings).tables[T]
    assert changed.state.value == "needs-resnapshot" and "another program" in (changed.reason or "")


def test_maintenance_leaves_the_files_to_bigquery(history: History, spark: SparkSession) -> None:
    from tideline_spark.maintain import maintain

    history.merge(spark)
    order = order_maintenance(history.settings, maintenance_id=f"m{time.monotonic_ns()}")
    (done,) = maintain(spark, order).tables
    assert (done.outcome, done.error) == (MaintenanceOutcome.LEFT, None)
    assert done.before is not None and (done.before.files, done.before.rows) == (1, 3)
    eager = replace(order.thresholds, small_files_min=1, vacuum_hours=24.0)
    (again,) = maintain(spark, replace(order, thresholds=eager)).tables
    assert again.error is None
    assert rows(history, spark) == [(1, "x"), (2, "x"), (3, "x")]


def rebuilt(
    history: History, spark: SparkSession, mode: Mode | None = None, table: str = T
) -> list[str]:
    from tideline_spark.merge import run_plan

    record = begin_rebuild(history.settings, table, mode=mode)
    found: list[str] = []
    while plan := next_step(history.settings, record):
        assert isinstance(plan, Plan) and not plan.delayed, plan.delayed
        for one in run_plan(spark, plan).tables:
            found.append(f"{one.outcome.value} {one.error or ''}".strip())
            if one.outcome is Outcome.FAILED:
                return found
    return found


def test_a_rebuild_leaves_no_dataset_of_its_shadow(
    history: History, spark: SparkSession, dataset: Dataset
) -> None:
    history.merge(spark)
    before = rows(history, spark)
    assert set(rebuilt(history, spark)) == {"applied"}
    assert rows(history, spark) == before
    names = [one.dataset_id for one in dataset.client.list_datasets()]
    assert not [one for one in names if dataset.name in one and "rebuild" in one]
    history.commit(row("c", 4))
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.APPLIED
    assert rows(history, spark) == [*before, (4, "x")]


def test_a_rebuild_changes_the_mode(history: History, spark: SparkSession) -> None:
    history.merge(spark)
    history.commit(row("u", 1, "y"))
    history.merge(spark)
    assert set(rebuilt(history, spark, Mode.APPEND)) == {"applied"}
    assert rows(history, spark) == [(1, "x"), (1, "y"), (2, "x"), (3, "x")]
    frame = open_target(spark.newSession(), url_of(history)).rows()
    names = ["_batch_id", "_sequence_num", "_operation", "_before_id", "_before_text"]
    assert set(names) <= set(frame.columns)
    changes = frame.select("_operation", "id", "_before_id").orderBy("_sequence_num").collect()
    assert tuple(changes[-1]) == ("update", 1, 1)


@pytest.mark.usefixtures("blocks_of_ten")
def test_garbage_waits_for_the_target(history: History, spark: SparkSession) -> None:
    """Parts that a full dump made needless stay until BigQuery's table has the dump."""
    low = history.last_seq
    for key in (1, 2, 3):
        history.commit(row("r", key))
    history.commit(deletes_before=[(T, low)])
    for key in range(17, 45):
        history.commit(row("c", key))
    register_warehouse(history.settings, history.store)
    roll_up(history)
    later = datetime.now(UTC) + timedelta(days=400)
    waiting = Garbage(history.settings, history.store).collect(later, dry_run=True)
    assert waiting.objects[Fate.UNAPPLIED] and not waiting.objects[Fate.UNNEEDED]
    history.merge(spark)
    found = Garbage(history.settings, history.store).collect(later)
    assert found.objects[Fate.UNNEEDED] and not found.objects[Fate.UNAPPLIED]
    history.commit(row("c", 9))
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.APPLIED
    assert (9, "x") in rows(history, spark)


@pytest.mark.timeout(1_200)
def test_verify_finds_and_repairs_what_others_did(
    database: Database,
    pipeline_of: PipelineFactory,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    dataset: Dataset,
    tmp_path: Path,
) -> None:
    database.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, name text, price numeric(10,2), day date)",
        "INSERT INTO t SELECT g, 'n' || g, g / 7.0, '2024-01-01'::date + g"
        " FROM generate_series(1, 60) g",
    )
    with_bigquery(request, Warehouse(url=tmp_path.as_uri()))
    keys = {"project": PROJECT, "endpoint": dataset.front.endpoint, "dataset_prefix": dataset.name}
    pipeline = pipeline_of(database, warehouse={"format": "bigquery", "bigquery": keys})
    pipeline.start()
    jobs = SharedJobs(pipeline, spark)
    pipeline.ask(DumpRequest("first", (T,)))
    jobs.merge("m", [T])
    equal = verified(jobs, "v-equal", T)[T]
    assert (equal.outcome, equal.rows) == (VerificationOutcome.EQUAL, 60), equal
    name = f"`{dataset.name}__public`.t"
    for statement in (
        f"DELETE FROM {name} WHERE id = 7",  # noqa: S608
        f"UPDATE {name} SET name = 'other' WHERE id = 20",  # noqa: S608
    ):
        dataset.client.query(statement).result()
    found = verified(jobs, "v-damaged", T)[T]
    assert found.outcome is VerificationOutcome.DIFFERS
    assert {(one.kind, one.key, one.columns) for one in found.keys} == {
        ("missing", ("7",), ()),
        ("different", ("20",), ("name",)),
    }
    verified(jobs, "v-repair", T, repair=True)
    assert verified(jobs, "v-after", T)[T].outcome is VerificationOutcome.EQUAL
    assert dataset.rows(f"SELECT COUNT(*) FROM {name} WHERE name = 'other'") == [(0,)]  # noqa: S608
