# ruff: noqa: S608  statements are made of names of a test's tables
"""BigQuery tables that a stream of changes writes: what they hold, whatever becomes of runs.

Rows of a run may be in the table before its number is. So what counts is what the table holds once
a later run has committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devtools.bigquery.streams import StreamFault, StreamService
from tests.fixtures.bigquery import Dataset
from tests.fixtures.bigquery_place import with_bigquery, with_streams
from tests.fixtures.capture import PipelineFactory
from tests.fixtures.parts import Emptied, Event, History, Row, Shaped, schema_of
from tests.fixtures.services import Database
from tests.spark.orders import (
    ORDERS,
    SCHEMA,
    applied,
    content,
    moved,
    order,
    pending,
    run,
    touched,
)
from tests.spark.test_bigquery_commands import T, rebuilt
from tests.spark.test_parity import compare
from tests.spark.test_verify import SharedJobs, verified
from tideline.contract.errors import Misconfigured
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome
from tideline.contract.request import DumpRequest
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.verification import VerificationOutcome
from tideline.planner import applied_state
from tideline.settings import Warehouse
from tideline_spark.formats.bigquery.access import BigQueryAccess
from tideline_spark.formats.registry import open_target
from tideline_spark.modes import streamed
from tideline_spark.modes.base import Work
from tideline_spark.working_columns import SEQUENCE_NUMBER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = {"writes": "stream"}
HISTORIES = 4
"""In the long form."""


def _module(name: str) -> Any:
    return import_module(f"tideline_spark.{name}")


class Died(BaseException):
    """The process was killed."""


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return with_streams(request, Warehouse(url=tmp_path.as_uri()))


@pytest.fixture
def history(place: Warehouse, tmp_path: Path, spark: SparkSession) -> History:
    """A streamed table of one row."""
    made = History(tmp_path, place=place, tables={ORDERS: STREAM})
    made.commit(Shaped(SCHEMA))
    made.commit(order("c", 1, "new", "first"))
    applied(made, spark)
    return made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [10, 12])
def test_a_target_holds_what_the_model_says(
    spark: SparkSession, tmp_path: Path, place: Warehouse, seed: int
) -> None:
    """Merged several times, with changes of the columns and a dump that ends rows."""
    compare(
        spark, tmp_path, Mode.CURRENT, seed, frozenset(), drop_columns=True, place=place, **STREAM
    )


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", range(20, 20 + HISTORIES))
def test_targets_hold_what_the_model_says(
    spark: SparkSession, tmp_path: Path, place: Warehouse, seed: int
) -> None:
    ignored = frozenset({StepKind.DROP, StepKind.RENAME}) if seed % 2 else frozenset()
    drop = not seed % 2
    compare(spark, tmp_path, Mode.CURRENT, seed, ignored, drop_columns=drop, place=place, **STREAM)


def test_a_merge_streams_its_rows_and_records_its_number(
    history: History, spark: SparkSession, streams: StreamService
) -> None:
    assert not streams.requests, "a new table is loaded"
    history.commit(order("u", 1, "paid", "first"), order("c", 2, "new"), order("c", 3, "new"))
    history.commit(order("d", 3))
    receipt = applied(history, spark)
    assert (receipt.inserted, receipt.updated, receipt.deleted) == (0, 2, 1)
    assert receipt.bytes_billed > 0, "for the number's commit to the log"
    assert len(streams.requests) == 1
    assert content(history, spark) == {1: ("paid", "first"), 2: ("new", None)}
    shown = applied_state(history.settings).tables[ORDERS]
    assert (shown.state.value, shown.reason, shown.layout_wanted) == ("active", None, None)


# -- killed, repeated and raced


def _killed_before_the_number(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a merge whose rows come, and which dies before its number does."""

    def die(*given: Any) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(BigQueryAccess, "commit", die)
        with pytest.raises(Died):
            history.merge(spark)


def test_a_run_that_is_killed_before_its_number_is_repeated(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.commit(order("u", 1, "paid", "second"), order("c", 2, "new"), order("c", 3, "new"))
    _killed_before_the_number(history, spark, monkeypatch)
    assert content(history, spark).keys() == {1, 2, 3}, "rows come before the number"
    history.commit(order("d", 2), touched(3, "paid"), moved(1, 7, "sent"))
    applied(history, spark)
    assert content(history, spark) == {3: ("paid", None), 7: ("sent", "second")}
    assert pending(history, spark) == {}


def test_a_run_that_fails_amid_its_rows_is_repeated(
    history: History,
    spark: SparkSession,
    streams: StreamService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some are there, and its number is not."""
    monkeypatch.setattr(_module("formats.bigquery.streaming"), "REQUEST_BYTES_MAX", 150)
    history.commit(*(order("c", key, "new") for key in range(2, 8)), order("d", 1))
    before = applied_state(history.settings).tables[ORDERS].merged
    streams.fail_next(None, StreamFault.DENIED)
    (receipt,) = history.merge(spark).tables
    assert (receipt.outcome, receipt.error_kind) == (Outcome.FAILED, "Misconfigured")
    assert "secret" not in str(receipt.error) and "PERMISSION_DENIED" in str(receipt.error)
    assert applied_state(history.settings).tables[ORDERS].merged == before
    assert content(history, spark) != {1: ("new", "first")}, "no row has come"
    applied(history, spark)
    assert content(history, spark) == dict.fromkeys(range(2, 8), ("new", None))


@pytest.mark.parametrize("fault", [StreamFault.ANSWER_LOST, StreamFault.REQUEST_LOST])
def test_a_request_that_is_lost_is_sent_again(
    history: History, spark: SparkSession, streams: StreamService, fault: StreamFault
) -> None:
    history.commit(order("u", 1, "paid"), order("c", 2, "new"))
    streams.fail_next(fault)
    applied(history, spark)
    assert content(history, spark) == {1: ("paid", None), 2: ("new", None)}
    assert len(streams.requests) == 2


def _late(
    history: History,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    other: Callable[[], object],
) -> Any:
    """Run a plan of what waits, which sends its rows only when ``other`` was done."""
    plan, met, module = history.plan(), list[str](), _module("formats.bigquery.table")
    send = module.send_rows

    def late(*given: Any) -> Any:
        if not met:
            met.append("late")
            other()
        return send(*given)

    with monkeypatch.context() as patched:
        patched.setattr(module, "send_rows", late)
        receipt = run(spark, plan)
    assert met
    return receipt


LATER: dict[str, tuple[list[Event], dict[int, Any]]] = {
    "deleted": ([order("d", 5), order("d", 1)], {9: ("new", None)}),
    "changed": ([order("u", 5, "paid"), order("d", 1)], {5: ("paid", None), 9: ("new", None)}),
    "moved": ([moved(5, 6, "paid"), order("d", 1)], {6: ("paid", "five"), 9: ("new", None)}),
    "emptied": ([Emptied(ORDERS)], {9: ("new", None)}),
}


@pytest.mark.parametrize("later", LATER)
def test_a_late_run_brings_nothing_back(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """Another run, of a longer plan, has read the same state, and was first. Rows that its plan
    both begins and ends are in no folded row of it, and no row of the table."""
    events, wanted = LATER[later]
    history.commit(order("c", 5, "new", "five"))

    def longer() -> None:
        history.commit(*events, order("c", 9, "new"))
        run(spark, history.plan())

    receipt = _late(history, spark, monkeypatch, longer)
    assert receipt.outcome is Outcome.ALREADY_APPLIED
    assert content(history, spark) == wanted
    history.commit(order("c", 10, "new"))
    applied(history, spark)
    assert content(history, spark) == {**wanted, 10: ("new", None)}


def test_a_late_run_of_a_dump_that_ended_meanwhile_brings_nothing_back(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.commit(order("c", 5, "new"))
    low = history.last_seq

    def longer() -> None:
        history.commit(order("r", 1, "dumped"), deletes_before=[(ORDERS, low)])
        run(spark, history.plan())

    _late(history, spark, monkeypatch, longer)
    assert content(history, spark) == {1: ("dumped", None)}


def test_a_late_run_finds_a_table_that_was_made_again(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would be newer than rows of the new table, which came without numbers."""
    history.commit(order("c", 5, "late"), order("u", 1, "late"))

    def remade() -> None:
        history.commit(order("d", 5), order("u", 1, "paid"))
        run(spark, history.plan())
        assert set(rebuilt(history, spark, table=ORDERS)) == {"applied"}

    receipt = _late(history, spark, monkeypatch, remade)
    assert receipt.outcome is Outcome.ALREADY_APPLIED
    assert content(history, spark) == {1: ("paid", None)}


# -- what a plan may hold


def test_values_that_the_log_does_not_carry_are_the_targets(
    history: History, spark: SparkSession
) -> None:
    history.commit(order("c", 2, "new", "second"), order("c", 3, "new", "third"))
    applied(history, spark)
    history.commit(touched(1, "paid"), moved(2, 20, "moved"), order("d", 3), touched(4, "odd"))
    receipt = applied(history, spark)
    assert content(history, spark) == {
        1: ("paid", "first"), 20: ("moved", "second"), 4: ("odd", None)
    }  # fmt: skip
    # No row has had one for it: it is asked for, and not NULL.
    assert pending(history, spark) == {4: ["note"]}
    assert (receipt.pending, receipt.pending_keys) == (1, (("4",),))


def test_a_truncate_and_a_dump_end_rows(history: History, spark: SparkSession) -> None:
    history.commit(order("c", 2, "new"), order("c", 3, "new"))
    applied(history, spark)
    history.commit(order("c", 4, "new"), Emptied(ORDERS), order("c", 2, "again"))
    receipt = applied(history, spark)
    assert content(history, spark) == {2: ("again", None)}
    assert (receipt.updated, receipt.deleted) == (1, 3)
    low = history.last_seq
    history.commit(order("c", 8, "meanwhile"), order("r", 9, "dumped"))
    history.commit(deletes_before=[(ORDERS, low)])
    applied(history, spark)
    assert content(history, spark) == {8: ("meanwhile", None), 9: ("dumped", None)}


def test_columns_change_where_they_may_and_else_by_a_new_table(
    history: History, spark: SparkSession
) -> None:
    """A default in rows that are there is an UPDATE, which no streamed table takes."""
    target: Any = open_target(spark.newSession(), history.target(ORDERS))
    life = target.look().log.life_column
    history.commit(order("c", 2, "new"))
    applied(history, spark)
    more = {"id": "int64", "status": "string", "note": "string", "extra": "int32"}
    step = ColumnStep(StepKind.ADD, "extra", type="int32")
    history.commit(Shaped(schema_of(ORDERS, more, ["id"]), (step,)))
    history.commit(Row(ORDERS, "u", {"id": 2, "status": "paid", "extra": 1}))
    applied(history, spark)
    assert target.look().log.life_column == life, "one ALTER TABLE"
    filled = {**more, "given": "int32"}
    step = ColumnStep(StepKind.ADD, "given", type="int32", default="7")
    history.commit(Shaped(schema_of(ORDERS, filled, ["id"]), (step,)))
    history.commit(Row(ORDERS, "c", {"id": 3, "given": 8}))
    applied(history, spark)
    assert target.look().log.life_column != life
    found = [(row["id"], row["extra"], row["given"]) for row in history.rows(spark, ORDERS)]
    assert found == [(1, None, 7), (2, 1, 7), (3, None, 8)]
    keyed = {"key": "int64", **{name: kind for name, kind in filled.items() if name != "id"}}
    renamed = ColumnStep(StepKind.RENAME, "key", was="id")
    history.commit(Shaped(schema_of(ORDERS, keyed, ["key"]), (renamed,)))
    history.commit(Row(ORDERS, "u", {"key": 1, "given": 9}), Row(ORDERS, "d", {"key": 2}))
    applied(history, spark)
    assert [(row["key"], row["given"]) for row in history.rows(spark, ORDERS)] == [(1, 9), (3, 8)]


def test_a_table_is_switched_by_a_rebuild(
    history: History, place: Warehouse, spark: SparkSession, streams: StreamService
) -> None:
    history.commit(order("c", 2, "new"))
    applied(history, spark)
    sent = len(streams.requests)
    history.settings = history.settings.model_copy(update={"tables": {}})
    shown = applied_state(history.settings).tables[ORDERS]
    assert str(shown.layout) == "written by streams" and shown.layout_wanted is not None
    assert set(rebuilt(history, spark, table=ORDERS)) == {"applied"}
    history.commit(order("u", 1, "merged"))
    applied(history, spark)
    assert len(streams.requests) == sent
    back = History(history.root / "other", place=place, tables={ORDERS: STREAM})
    history.settings = history.settings.model_copy(update={"tables": back.settings.tables})
    assert set(rebuilt(history, spark, table=ORDERS)) == {"applied"}
    history.commit(order("u", 2, "streamed"))
    applied(history, spark)
    assert len(streams.requests) == sent + 1
    assert content(history, spark) == {1: ("merged", None), 2: ("streamed", None)}


def test_a_new_generation_is_a_new_table(history: History, spark: SparkSession) -> None:
    low = history.last_seq
    state = {ORDERS: {"generation": 1}}
    history.commit(order("r", 1, "again"), deletes_before=[(ORDERS, low)], states=state)
    applied(history, spark)
    history.commit(order("u", 1, "later"))
    applied(history, spark)
    assert content(history, spark) == {1: ("later", None)}


@pytest.mark.timeout(1_200)
def test_verify_finds_and_repairs_what_others_did(
    database: Database,
    pipeline_of: PipelineFactory,
    place: Warehouse,
    spark: SparkSession,
    dataset: Dataset,
) -> None:
    """By changes behind BigQuery's back: it would refuse DML. The repair is a stream, too."""
    database.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, name text, price numeric(10,2), day date)",
        "INSERT INTO t SELECT g, 'n' || g, g / 7.0, '2024-01-01'::date + g"
        " FROM generate_series(1, 60) g",
    )
    keys = place.bigquery.model_dump(exclude_defaults=True)
    warehouse = {"format": "bigquery", "bigquery": keys}
    pipeline = pipeline_of(database, warehouse=warehouse, tables={"*.*": STREAM})
    pipeline.start()
    jobs = SharedJobs(pipeline, spark)
    pipeline.ask(DumpRequest("first", (T,)))
    jobs.merge("m", [T])
    database.run("UPDATE t SET name = 'new' WHERE id <= 3", "DELETE FROM t WHERE id = 4")
    jobs.merge("n", [T])
    equal = verified(jobs, "v-equal", T)[T]
    assert (equal.outcome, equal.rows) == (VerificationOutcome.EQUAL, 59), equal
    name = f"`{dataset.name}__public`.t"
    for statement in (
        f"DELETE FROM {name} WHERE id = 7",
        f"UPDATE {name} SET name = 'other' WHERE id = 20",
    ):
        dataset.direct.query(statement).result()
    found = verified(jobs, "v-damaged", T)[T]
    assert {(one.kind, one.key, one.columns) for one in found.keys} == {
        ("missing", ("7",), ()),
        ("different", ("20",), ("name",)),
    }
    verified(jobs, "v-repair", T, repair=True)
    assert verified(jobs, "v-after", T)[T].outcome is VerificationOutcome.EQUAL


# -- what is refused


@pytest.mark.parametrize(
    ("settings", "columns", "key", "says"),
    [
        ({"mode": "soft_deletes"}, {"id": "int64"}, ["id"], "not soft_deletes"),
        ({"mode": "append"}, {"id": "int64"}, ["id"], "not append"),
        ({"mode": "history"}, {"id": "int64"}, ["id"], "not history"),
        ({"keyless": "counted"}, {"id": "int64"}, [], "needs a key"),
        ({}, {"id": "float64"}, ["id"], "no key of float64"),
        ({}, {"id": "binary"}, ["id"], "no key of binary"),
        ({}, {f"k{at}": "int64" for at in range(17)}, [f"k{at}" for at in range(17)], "at most 16"),
        ({"format": "delta"}, {"id": "int64"}, ["id"], "for BigQuery tables"),
    ],
)
def test_a_table_that_cannot_be_streamed_waits_with_the_reason(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    settings: dict[str, str],
    columns: dict[str, str],
    key: list[str],
    says: str,
) -> None:
    place = with_bigquery(request, Warehouse(url=tmp_path.as_uri()))
    made = History(tmp_path, place=place, tables={ORDERS: STREAM, "public.ord*": settings})
    made.commit(Shaped(schema_of(ORDERS, columns, key)))
    made.commit(Row(ORDERS, "c", dict.fromkeys(columns)))
    plan = made.plan()
    assert not plan.tables
    assert says in plan.delayed[ORDERS]


def test_stale_rows_are_read_by_no_merge(
    history: History, spark: SparkSession, dataset: Dataset
) -> None:
    """Whole rows need no reading."""
    name = (f"{history.settings.warehouse.bigquery.dataset_prefix}__public", "orders")
    dataset.front.options[name] = {"maxStaleness": "0-0 0 0:15:0"}
    history.commit(order("c", 2, "new"))
    applied(history, spark)
    history.commit(touched(2, "paid"))
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.FAILED
    assert "max_staleness" in str(receipt.error) and "ALTER TABLE" in str(receipt.hint)
    with pytest.raises(Misconfigured, match="max_staleness"):
        open_target(spark.newSession(), history.target(ORDERS)).rows()
    del dataset.front.options[name]
    applied(history, spark)
    assert content(history, spark) == {1: ("new", "first"), 2: ("paid", None)}


def test_a_column_of_others_would_lose_its_values(
    history: History, spark: SparkSession, dataset: Dataset
) -> None:
    name = f"{history.settings.warehouse.bigquery.dataset_prefix}__public"
    dataset.rows(f"ALTER TABLE `{name}`.orders ADD COLUMN theirs INT64")
    history.commit(order("c", 2, "new"))
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.FAILED
    assert "'theirs'" in str(receipt.error) and "drop it there" in str(receipt.hint)
    dataset.rows(f"ALTER TABLE `{name}`.orders DROP COLUMN theirs")
    applied(history, spark)
    assert content(history, spark) == {1: ("new", "first"), 2: ("new", None)}


# -- that the checks notice


def _of_the_target_alone(work: Work, folded: Any, shape: Any) -> Any:
    """Keys that the plan itself ends are not sent."""
    return _ENDED(replace(work, changes=work.changes.where("false")), folded, shape)


def _in_the_order_of_arrival(rows: Any, work: Work, last: int) -> Any:
    return rows.selectExpr("*", f"'0' AS {SEQUENCE_NUMBER}")


def _unfilled(work: Work, folded: Any, shape: Any) -> Any:
    return folded


_ENDED = streamed._ended
BROKEN: dict[str, tuple[str, Callable[..., Any], Callable[..., None], tuple[Any, ...]]] = {
    "ends": ("_ended", _of_the_target_alone, test_a_late_run_brings_nothing_back, ("emptied",)),
    "numbers": (
        "_numbered",
        _in_the_order_of_arrival,
        test_a_late_run_brings_nothing_back,
        ("changed",),
    ),
    "values": (
        "_filled",
        _unfilled,
        lambda history, spark, _: test_values_that_the_log_does_not_carry_are_the_targets(
            history, spark
        ),
        (),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_on_purpose_is_noticed(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    function, broken, check, more = BROKEN[name]
    monkeypatch.setattr(streamed, function, broken)
    with pytest.raises(AssertionError):
        check(history, spark, monkeypatch, *more)
