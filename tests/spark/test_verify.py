# ruff: noqa: S608  statements are made of constants and our own names
"""Verification of real pipelines: what is equal is proven, damage is found, named, repaired."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.fixtures.capture import Pipeline, PipelineFactory, poll
from tests.fixtures.services import Database
from tests.fixtures.sources import ConformingSource, Writers
from tideline.contract.layout import table_path
from tideline.contract.plan import Plan
from tideline.contract.receipt import Receipt
from tideline.contract.request import Answer, DumpRequest, KeyRange
from tideline.contract.schema import parse_table
from tideline.contract.verification import (
    TableResult,
    Verification,
    VerificationOutcome,
    VerifyPlan,
)
from tideline.planner.verification import VerificationRun, merge_up
from tideline.planner.verified import VerifiedThrough, last_verification
from tideline.store.objects import open_store
from tideline_capture.core.snapshots.verification import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedJobs:
    """`VerifyWork` with the run's one Spark application. ``meanwhile`` happens once the
    next request is answered, before anything is compared."""

    def __init__(self, pipeline: Pipeline[Any], spark: SparkSession) -> None:
        self.pipeline = pipeline
        self.spark = spark
        self.plans: list[VerifyPlan] = []
        self.results: list[Verification] = []
        self.meanwhile: list[Callable[[], None]] = []
        self._merges = 0

    def read(self, request: DumpRequest) -> Answer:
        answer = self.pipeline.ask(request)
        while self.meanwhile:
            self.meanwhile.pop()()
        return answer

    def merge(self, name: str, tables: Sequence[str]) -> None:
        self._merges += 1
        merge_up(self.pipeline.settings, self, f"{name}.{self._merges}", tables)

    def run_plan(self, plan: Plan) -> Receipt:
        from tideline_spark.merge import run_plan

        receipt = run_plan(self.spark, plan)
        assert [one.error for one in receipt.tables if one.error] == []
        return receipt

    def compare(self, plan: VerifyPlan) -> Verification:
        from tideline_spark.verify import run_verification

        self.plans.append(plan)
        self.results.append(run_verification(self.spark, plan))
        return self.results[-1]

    def report(self, text: str) -> None:
        print(text)


def verified(
    jobs: SharedJobs, name: str, *tables: str, repair: bool = False, **scope: Any
) -> dict[str, TableResult]:
    """What a verification of ``tables`` says, by table."""
    request = DumpRequest(name, tables, purpose="verify", **scope)
    result = VerificationRun(jobs.pipeline.settings, jobs, request, passes_max=2).run(repair=repair)
    return {one.table: one for one in result.tables}


def target_of(pipeline: Pipeline[Any], table: str) -> str:
    """The target as Spark SQL names it."""
    url = table_path(pipeline.settings.warehouse.url, parse_table(table))
    return f"delta.`{url}`"


def verified_status(pipeline: Pipeline[Any]) -> VerifiedThrough:
    """What is kept of the table."""
    store, state = open_store(pipeline.settings.store), pipeline.table(ORDERS)
    result = last_verification(pipeline.settings, store, pipeline.manifest(), ORDERS, state)
    assert result is not None
    return result.through(state)


def named(result: Verification) -> tuple[VerificationOutcome, str]:
    """The one table's result, and the kind of error that is its reason."""
    [table] = result.tables
    return table.outcome, (table.reason or "").partition(":")[0]


def sampled_in(name: str) -> list[int]:
    """Which of the table's chunks a request of that name reads, of 40 %; the last has no row."""
    request = DumpRequest(name, (ORDERS,), purpose="verify", sample_percent=40)
    begin = (None, *((str(number),) for number in range(100, 600, 100)))
    return [at for at, key in enumerate(begin) if sampled(request, ORDERS, key)]


def named_for(*chunks: int) -> str:
    """The name of a request that reads just these."""
    names = (f"v-sample-{number}" for number in range(10_000))
    return next(name for name in names if sampled_in(name) == list(chunks))


ORDERS = "public.orders"
ROUNDS = int(os.environ.get("VERIFY_ROUNDS", "1"))


@pytest.fixture
def orders(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    database.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, name text, price numeric(10,2), ratio float8,"
        " raw bytea, at timestamptz, day date, big numeric)",
        "INSERT INTO orders SELECT g, 'n' || g, g / 7.0, CASE g % 5 WHEN 0 THEN 'NaN' WHEN 1 THEN"
        " '-0'::float8 ELSE g / 3.0 END, decode(md5(g::text), 'hex'), '2024-01-01'::timestamptz"
        " + g * interval '1 h', CASE WHEN g % 9 = 0 THEN 'infinity' ELSE '2024-01-01'::date"
        " + g END,"
        " CASE WHEN g % 4 > 0 THEN g END FROM generate_series(1, 500) g",
    )
    return pipeline_of(database, capture={"chunk_rows": 100})


def change_twenty(orders: Pipeline[Database], jobs: SharedJobs) -> None:
    """Eighteen rows are updated, two deleted; that is captured and merged."""
    orders.database.run(
        "UPDATE orders SET name = 'anew' WHERE id BETWEEN 401 AND 418",
        "DELETE FROM orders WHERE id > 498",
    )
    moment_us = time.time() * 1e6
    poll("the changes are captured", lambda: orders.heard_after(moment_us))
    jobs.merge("meanwhile", [ORDERS])


@pytest.mark.timeout(1_200)
def test_damage_is_found_named_and_repaired(
    orders: Pipeline[Database], spark: SparkSession
) -> None:
    worker = orders.start()
    jobs = SharedJobs(orders, spark)
    orders.ask(DumpRequest("first", (ORDERS,)))
    jobs.merge("m", [ORDERS])
    jobs.meanwhile.append(lambda: change_twenty(orders, jobs))
    moved = verified(jobs, "v-moved", ORDERS)[ORDERS]
    assert (moved.outcome, moved.compared_later) == (VerificationOutcome.EQUAL, 20), moved
    # As many as the table has: each was compared once, in one pass or the other.
    assert moved.rows == 498
    orders.database.run("INSERT INTO orders (id, name) VALUES (499, 'back'), (500, 'back')")
    result = verified(jobs, "v-equal", ORDERS)[ORDERS]
    assert (result.outcome, result.rows, result.changing) == (VerificationOutcome.EQUAL, 500, 0), (
        result
    )
    target = target_of(orders, ORDERS)

    for statement in (
        "DELETE FROM {} WHERE id = 7",
        "UPDATE {} SET name = 'other' WHERE id = 20",
        "UPDATE {} SET big = NULL WHERE id = 33",
        "UPDATE {} SET name = NULL, price = price + 1 WHERE id = 40",
        "UPDATE {} SET ratio = 0.0 WHERE id = 51",
        "UPDATE {} SET _tl_overflow = map('day', '-infinity') WHERE id = 90",
        "UPDATE {} SET _tl_seq = 1000000000 WHERE id = 101",
        "INSERT INTO {} SELECT * FROM {} WHERE id = 200",
        "INSERT INTO {} SELECT * EXCEPT (id), id + 9000 AS id FROM (SELECT * FROM {} WHERE id = 5)",
    ):
        spark.sql(
            statement.replace("{}", target).replace("* EXCEPT (id), id + 9000 AS id", SHIFTED)
        )
    found = verified(jobs, "v-damaged", ORDERS)[ORDERS]
    assert (found.outcome, found.rows) == (VerificationOutcome.DIFFERS, 500)
    assert {(one.kind, one.key, one.columns) for one in found.keys} == {
        ("missing", ("7",), ()),
        ("different", ("20",), ("name",)),
        ("different", ("33",), ("big",)),
        ("different", ("40",), ("name", "price")),
        ("different", ("51",), ("ratio",)),
        ("different", ("90",), ("day",)),
        ("sequence", ("101",), ()),
        ("duplicate", ("200",), ()),
        ("extra", ("9005",), ()),
    }
    assert found.columns == {"name": 2, "big": 1, "price": 1, "ratio": 1, "day": 1}

    # Of a range, a sample, given keys: only what lies there.
    between = KeyRange(("30",), ("60",))
    part = verified(jobs, "v-range", ORDERS, key_range=between)[ORDERS]
    assert (part.rows, part.extra_sought) == (30, True)
    assert {one.key for one in part.keys} == {("33",), ("40",), ("51",)}
    empty = verified(jobs, "v-none", ORDERS, key_range=KeyRange(("600",), ("700",)))[ORDERS]
    assert (empty.outcome, empty.rows) == (VerificationOutcome.NOT_COMPARED, 0)
    sample = verified(jobs, named_for(0, 3), ORDERS, sample_percent=40)[ORDERS]
    read = [chunk for chunk in jobs.plans[-1].tables[0].chunks if not chunk.skipped]
    assert (len(read), sample.scope, sample.extra_sought) == (2, "sample", True)
    assert sample.rows == 200
    assert {one.key[0] for one in sample.keys} == {"7", "20", "33", "40", "51", "90"}
    nothing = verified(jobs, named_for(), ORDERS, sample_percent=40)[ORDERS]
    assert (nothing.outcome, nothing.rows) == (VerificationOutcome.NOT_COMPARED, 0)
    asked = verified(jobs, "v-keys", ORDERS, keys=(("7",), ("8",), ("9005",), ("9999",)))[ORDERS]
    assert {(one.kind, one.key) for one in asked.keys} == {
        ("missing", ("7",)),
        ("extra", ("9005",)),
    }
    status = verified_status(orders)
    assert (status.seq, status.verify_id) == (result.seq, "v-equal")
    assert status.invalid is not None
    assert status.invalid.startswith("changed by others: version ")
    assert status.invalid.endswith(": DELETE")

    # A part that is gone or torn is named, and nothing is said of the table.
    whole = next(plan for plan in jobs.plans if plan.verify_id == "v-damaged.1")
    store = open_store(orders.settings.store)
    torn, gone = (chunk.key for chunk in whole.tables[0].chunks[:2])
    assert torn is not None
    assert gone is not None
    data = store.get(torn)
    assert data is not None
    store.put(torn, data[:-40])
    assert named(jobs.compare(whole)) == (VerificationOutcome.NOT_COMPARED, "CorruptData")
    store.put(torn, data)
    store.delete(gone)
    assert named(jobs.compare(whole)) == (VerificationOutcome.NOT_COMPARED, "CorruptData")
    other = store.get(torn)
    assert other is not None
    store.put(gone, other)
    assert named(jobs.compare(whole)) == (VerificationOutcome.NOT_COMPARED, "CorruptData")

    again = verified(jobs, "v-repaired", ORDERS, repair=True)[ORDERS]
    assert (again.outcome, again.repaired, again.differences) == (
        VerificationOutcome.EQUAL,
        9,
        0,
    ), again
    assert again.rows == 500
    held = spark.sql(f"SELECT count(*), count(DISTINCT id) FROM {target}").collect()
    assert [tuple(row) for row in held] == [(500, 500)]
    assert verified_status(orders).invalid is None
    assert orders.table(ORDERS).generation == 0
    worker.terminate()


KEPT_AS = {"soft": "soft_deletes", "past": "history", "plain": "current", "log": "append"}
LAID_OUT: dict[str, dict[str, list[str]]] = {
    "soft": {"partition_by": ["a"]},
    "past": {"cluster_by": ["a", "id"]},
    "plain": {"partition_by": ["a"]},
    "log": {},
}
DAMAGE = {
    "soft": (
        "UPDATE {} SET _tl_deleted = true WHERE id = 5",
        "UPDATE {} SET _tl_deleted = false WHERE id = 3",
        "UPDATE {} SET b = 'of the past' WHERE id = 6",
    ),
    "past": (
        "UPDATE {} SET _tl_current = false WHERE id = 5 AND _tl_current",
        "UPDATE {} SET _tl_current = true WHERE id = 3",
        "UPDATE {} SET a = 'other' WHERE id = 4 AND _tl_current",
        "UPDATE {} SET a = 'of the past' WHERE id = 4 AND NOT _tl_current",
        "INSERT INTO {} SELECT * FROM {} WHERE id = 6 AND _tl_current",
    ),
    "plain": ("UPDATE {} SET b = 'nobody can tell' WHERE id = 6",),
}


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_of_every_mode_the_present_is_proven_in_the_columns_that_both_have(
    database: Database, pipeline_of: PipelineFactory, spark: SparkSession
) -> None:
    """What is deleted, ended, or kept apart from the source is not the source's any more."""
    names = {name: f"public.{name}" for name in KEPT_AS}
    apart = {"add": "ignore", "drop": "ignore"}
    for name in names:
        database.run(
            f"CREATE TABLE {name} (id bigint PRIMARY KEY, a text, b text)",
            f"INSERT INTO {name} SELECT g, 'a' || g, 'b' || g FROM generate_series(1, 20) g",
        )
    pipeline = pipeline_of(
        database,
        tables={
            names[n]: {"mode": mode, "on_change": apart, **LAID_OUT[n]}
            for n, mode in KEPT_AS.items()
        },
    )
    worker = pipeline.start()
    jobs = SharedJobs(pipeline, spark)
    pipeline.ask(DumpRequest("first", tuple(names.values())))
    jobs.merge("m", list(names.values()))
    for name in names:
        database.run(
            f"DELETE FROM {name} WHERE id = 3",
            f"UPDATE {name} SET a = 'new' WHERE id = 4",
            f"ALTER TABLE {name} DROP COLUMN b",
            f"ALTER TABLE {name} ADD COLUMN c int",
            f"UPDATE {name} SET c = 7 WHERE id = 5",
            f"INSERT INTO {name} VALUES (30, 'more')",
        )
    results = verified(jobs, "v-modes", *names.values())
    log = results.pop(names["log"])
    assert (log.outcome, (log.reason or "").partition(":")[0]) == (
        VerificationOutcome.NOT_COMPARED,
        "Misconfigured",
    )
    assert "log of changes" in (log.reason or "") and "tideline rebuild" in (log.hint or "")
    for result in results.values():
        assert (result.outcome, result.rows, result.uncompared) == (
            VerificationOutcome.EQUAL,
            20,
            ("c",),
        ), result

    for name, statements in DAMAGE.items():
        for statement in statements:
            spark.sql(statement.replace("{}", target_of(pipeline, names[name])))
    damaged = verified(jobs, "v-modes-damaged", *(names[name] for name in DAMAGE))
    reported = {
        name: {(one.kind, one.key[0], one.columns) for one in damaged[names[name]].keys}
        for name in DAMAGE
    }
    missing, extra = ("missing", "5", ()), ("extra", "3", ())
    past = {missing, extra, ("different", "4", ("a",)), ("duplicate", "6", ())}
    assert reported == {"soft": {missing, extra}, "past": past, "plain": set()}
    assert damaged[names["plain"]].outcome is VerificationOutcome.EQUAL
    # A plan speaks of one version of each table, whatever became of it since.
    earlier = next(plan for plan in jobs.plans if plan.verify_id == "v-modes.1")
    again = {one.table: one.outcome for one in jobs.compare(earlier).tables}
    assert again == dict.fromkeys(results, VerificationOutcome.EQUAL) | {
        names["log"]: VerificationOutcome.NOT_COMPARED
    }
    worker.terminate()


SHIFTED = (
    "id + 9000 AS id, name, price, ratio, raw, at, day, big, _tl_seq, _tl_ts, _tl_overflow,"
    " _tl_pending"
)


@pytest.mark.timeout(1_020 + 180 * ROUNDS)
@pytest.mark.long
@pytest.mark.parametrize("conforming", ["postgres", "mariadb"], indirect=True)
def test_under_load_no_difference_is_told_that_is_none(
    conforming: ConformingSource, pipeline_of: PipelineFactory, spark: SparkSession
) -> None:
    conforming.make("t")
    conforming.make("ledger")
    conforming.fill("t", 1, 301)  # the writers leave the last one alone
    table = conforming.full_name("t")
    pipeline = pipeline_of(conforming, capture={"chunk_rows": 50})
    worker = pipeline.start()
    jobs = SharedJobs(pipeline, spark)
    pipeline.ask(DumpRequest("first", (table,)))

    def change_one() -> None:
        conforming.run("UPDATE t SET ver = ver + 1 WHERE id = 301")
        moment_us = time.time() * 1e6
        poll("the change is captured", lambda: pipeline.heard_after(moment_us))
        jobs.merge("meanwhile", [table])

    jobs.meanwhile.append(change_one)
    with Writers(conforming, "t", "ledger", keys=300, pause_s=0.02) as writers:
        poll("the writers write", lambda: writers.commits > 0)
        for number in range(ROUNDS):
            result = verified(jobs, f"v-{number}", table)[table]
            assert result.outcome in (VerificationOutcome.EQUAL, VerificationOutcome.CHANGING), (
                result
            )
            assert result.rows + result.changing + result.compared_later > 0
    # Whoever took what changed meanwhile for a difference would tell of one.
    first = jobs.plans[0]
    assert first.tables[0].touched
    credulous = replace(first.tables[0], touched=())
    [wrong] = jobs.compare(replace(first, tables=(credulous,))).tables
    assert wrong.outcome is VerificationOutcome.DIFFERS

    quiet = verified(jobs, "v-quiet", table)[table]
    assert (quiet.outcome, quiet.changing) == (VerificationOutcome.EQUAL, 0), quiet
    target = target_of(pipeline, table)
    damaged = [row["id"] for row in spark.sql(f"SELECT id FROM {target} LIMIT 4").collect()]
    spark.sql(f"DELETE FROM {target} WHERE id = {damaged[0]}")
    spark.sql(f"UPDATE {target} SET t = 'x' WHERE id = {damaged[1]}")
    spark.sql(f"UPDATE {target} SET _tl_seq = 1000000000 WHERE id = {damaged[2]}")
    spark.sql(f"UPDATE {target} SET id = 999000 + id WHERE id = {damaged[3]}")
    mended = verified(jobs, "v-mended", table, repair=True)[table]
    assert (mended.outcome, mended.repaired) == (VerificationOutcome.EQUAL, 5), mended
    worker.terminate()
