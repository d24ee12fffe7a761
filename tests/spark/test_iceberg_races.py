"""Runs that write one Iceberg table at once: Iceberg compares files, and not what the table has
applied, so that runs whose files do not meet have to find each other by the number alone.

``RACED_MERGES`` says how many commits are tried in S3, by four writers together (16).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from devtools.services.s3 import S3Server
from tests.conformance.targets import APP, Case, commit_metadata
from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.object_storage import place_in
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.spark.orders import ORDERS, SCHEMA, applied, content, order, run
from tideline.contract.plan import CommitMetadata, Plan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.steps import ColumnStep, StepKind
from tideline.settings import Warehouse
from tideline.warehouse.iceberg.names import identifier_of
from tideline_spark.failures import SparkFailure, is_conflict
from tideline_spark.formats import registry
from tideline_spark.formats.base import Target
from tideline_spark.formats.statements import RowClause, RowMerge, of_source, of_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITERS = 4
ROUNDS = int(os.environ.get("RACED_MERGES", "16")) // WRITERS


@pytest.fixture
def history(tmp_path: Path, spark: SparkSession) -> History:
    place = with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")
    use_catalog(spark, place)
    made = History(tmp_path, place=place)
    made.commit(Shaped(SCHEMA))
    made.commit(order("c", 1, "new"))
    applied(made, spark)
    return made


def module_of(history: History, name: str) -> Any:
    """A module of the table format."""
    return import_module(f"tideline_spark.formats.{history.settings.warehouse.format}.{name}")


def overtaken(
    history: History,
    spark: SparkSession,
    plan: Plan,
    other: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
) -> TableReceipt:
    """Run ``plan``, which ``other`` overtakes when it has read what the table has applied, and has
    not yet read its rows."""
    table = module_of(history, "table")
    has_applied, met = table._has_applied, list[str]()

    def late(*given: Any) -> bool:
        found: bool = has_applied(*given)
        if not met:
            met.append("late")
            other()
        return found

    monkeypatch.setattr(table, "_has_applied", late)
    receipt = run(spark, plan)
    assert met
    return receipt


def test_a_run_that_a_longer_plan_overtakes_brings_nothing_back(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longer one has the same row and its delete: no file of it says that the row was there."""
    history.commit(order("c", 5, "new"))
    short = history.plan()
    history.commit(order("d", 5), order("c", 9, "new"))
    long = history.plan()
    receipt = overtaken(history, spark, short, lambda: run(spark, long), monkeypatch)
    assert set(content(history, spark)) == {1, 9}
    assert receipt.outcome is Outcome.ALREADY_APPLIED
    assert receipt.applied_manifest == long.to_manifest


def test_a_run_that_a_shorter_plan_overtakes_is_refused(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not begin where the table stands; the next plan does."""
    history.commit(order("c", 5, "new"))
    short = history.plan()
    history.commit(order("u", 5, "paid"), order("c", 9, "new"))
    long = history.plan()
    receipt = overtaken(history, spark, long, lambda: run(spark, short), monkeypatch)
    assert (receipt.outcome, receipt.applied_manifest) == (Outcome.REFUSED, short.to_manifest)
    applied(history, spark)
    assert content(history, spark) == {1: ("new", None), 5: ("paid", None), 9: ("new", None)}


def test_others_that_only_move_rows_do_not_stop_a_run(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a property that is set meanwhile is no conflict either."""
    from tideline_spark.formats.registry import open_target

    history.commit(order("c", 5, "new"))

    def others() -> None:
        target = open_target(spark.newSession(), history.target(ORDERS))
        target.set_property("team", "theirs")

    receipt = overtaken(history, spark, history.plan(), others, monkeypatch)
    assert (receipt.outcome, receipt.conflicts) == (Outcome.APPLIED, 0)
    assert set(content(history, spark)) == {1, 5}


def test_rows_of_others_that_come_before_a_run_is_published_stay(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are behind what the statement has staged: it is run again, and they are named."""
    from tideline_spark.formats.iceberg.publishing import Publication

    publish, met = Publication.publish, list[str]()

    def late(publication: Publication) -> int | None:
        if not met:
            met.append("late")
            name = ".".join(("tideline", *identifier_of(history.target(ORDERS))))
            theirs = f"INSERT INTO {name} (id, _tl_seq) VALUES (77, 0)"  # noqa: S608
            spark.newSession().sql(theirs).collect()
        return publish(publication)

    history.commit(order("c", 5, "new"))
    with monkeypatch.context() as patched:
        patched.setattr(Publication, "publish", late)
        receipt = applied(history, spark)
    assert set(content(history, spark)) == {1, 5, 77}
    assert receipt.conflicts == 1
    assert [one.partition(": ")[2] for one in receipt.external_changes] == ["append"]


def test_rows_and_number_move_in_one_step(history: History, spark: SparkSession) -> None:
    """In every version that the table ever had, the number is that of its rows."""
    from tideline_spark.formats.registry import open_target

    wanted = {history.last_number: {1}}
    for key in (2, 3):
        history.commit(order("c", key, "new"))
        wanted[history.last_number] = {*range(1, key + 1)}
        applied(history, spark)
    found = {}
    target = open_target(spark.newSession(), history.target(ORDERS))
    for commit in target.commits(target.newest()):
        rows = {row["id"] for row in target.rows(commit.version).collect()}
        assert commit.numbers, f"{commit} has no number"
        (number,) = commit.numbers.values()
        assert wanted[number] == rows, f"{commit} has {rows}"
        found[number] = rows
    assert found == wanted


def test_a_replay_changes_nothing(history: History, spark: SparkSession) -> None:
    """Of a plan, and of a statement whose table has the number already."""
    from tideline_spark.formats.registry import open_target

    history.commit(order("u", 1, "paid"))
    plan = history.plan()
    run(spark, plan)
    session = spark.newSession()
    target = open_target(session, history.target(ORDERS))
    version, rows = target.newest(), content(history, spark)
    assert run(spark, plan).outcome is Outcome.ALREADY_APPLIED
    session.sql("SELECT 1L AS id").createOrReplaceTempView("given")
    again = RowMerge(
        "given",
        f"{of_target('id')} = {of_source('id')}",
        (RowClause(values={"status": "'again'"}),),
    )
    (table,) = plan.tables
    where = (table.from_manifest, table.to_manifest, table.to_seq)
    metadata = CommitMetadata(table.app_id, "shop", "one", plan.plan_id, *where)
    assert target.merge(again, metadata) is None
    assert (target.newest(), content(history, spark)) == (version, rows)


def test_a_shorter_plan_does_not_drop_the_columns_of_a_longer_one(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each adds a column; the shorter one knows nothing of the second."""
    columns = {"id": "int64", "status": "string", "note": "string", "one": "int32"}
    one = ColumnStep(StepKind.ADD, "one", type="int32")
    history.commit(Shaped(schema_of(ORDERS, columns, ["id"]), (one,)))
    history.commit(Row(ORDERS, "c", {"id": 2, "one": 1}))
    short = history.plan()
    other = ColumnStep(StepKind.ADD, "other", type="int32")
    history.commit(Shaped(schema_of(ORDERS, {**columns, "other": "int32"}, ["id"]), (other,)))
    history.commit(Row(ORDERS, "c", {"id": 3, "one": 2, "other": 7}))
    long = history.plan()
    target = registry.open_target(spark.newSession(), history.target(ORDERS))
    kind: Any = type(target.schema)
    reshape, met = kind.reshape, list[str]()

    def late(target: Any, *given: Any) -> None:
        if not met:
            met.append("late")
            run(spark, long)
        reshape(target, *given)

    monkeypatch.setattr(kind, "reshape", late)
    assert run(spark, short).outcome is Outcome.ALREADY_APPLIED
    rows = [(row["id"], row["one"], row.get("other")) for row in history.rows(spark, ORDERS)]
    assert rows == [(1, None, None), (2, 1, None), (3, 2, 7)]


def counting(source: str, key: int) -> RowMerge:
    """Count one more in the row 1, and add the row ``key``."""
    one = RowClause(f"{of_target('id')} = 1", {"n": f"{of_target('n')} + 1"})
    values = {name: of_source(name) for name in ("id", "a b", "n")}
    return RowMerge(
        source, f"{of_target('id')} = {of_source('id')}", (one,), RowClause(values=values)
    )


@pytest.mark.drawn
@pytest.mark.timeout(600 + 30 * ROUNDS)
def test_of_raced_commits_in_s3_none_is_lost_and_none_applied_twice(
    spark_on_s3: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    """In each round four writers try the same number, each with a row of its own: one of them gets
    it, and knows that; the row that all of them change has counted every round once."""
    place = with_catalog(place_in(s3), tmp_path / "catalog.db")
    use_catalog(spark_on_s3, place)
    Case(spark_on_s3, place).made([(1, "counted", 0)])
    writers = [Case(spark_on_s3, place) for _ in range(WRITERS)]
    barrier, outcomes = Barrier(WRITERS, timeout=300), Counter[str]()

    def write(at: int, number: int) -> bool:
        writer = writers[at]
        key = WRITERS * number + at
        writer.view([(1, "", 0), (key, "own", number)])
        barrier.wait()
        return attempt(writer.open(), counting("given", key), number, outcomes)

    won: list[int] = []
    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(2, ROUNDS + 2):
            results = list(pool.map(write, range(WRITERS), [number] * WRITERS))
            assert sum(results) == 1, f"{sum(results)} have committed the number {number}"
            won.append(WRITERS * number + results.index(True))
    rows = Case(spark_on_s3, place).rows()
    assert rows[0] == (1, "counted", ROUNDS)
    assert [row[0] for row in rows[1:]] == won
    assert writers[0].target.snapshot().applied == {APP: ROUNDS + 1}
    assert outcomes["committed"] == ROUNDS and outcomes.total() >= WRITERS * ROUNDS, outcomes
    print(f"raced: {dict(outcomes)}")


def attempt(target: Target, rows: RowMerge, number: int, outcomes: Counter[str]) -> bool:
    """Merge until it is done or another one's; whether it was ours."""
    while True:
        try:
            ours = target.merge(rows, commit_metadata(number)) is not None
        except SparkFailure as error:
            assert is_conflict(error), error
            outcomes["conflict"] += 1
        else:
            outcomes["committed" if ours else "applied by another"] += 1
            return ours
