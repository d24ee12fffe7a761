"""Merges into tables in S3: other writers of the same table, and a store in trouble."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from devtools.services.s3 import S3Server
from tests.faults.every_mode import KEYED, NOW, EveryMode
from tests.faults.jobs import Jobs, unique
from tests.faults.races import Races
from tests.faults.s3_faults import ALWAYS, Kind, Request, S3Faults, Trouble
from tests.fixtures.object_storage import place_in, reach
from tideline.contract.errors import Unavailable
from tideline.contract.receipt import Outcome
from tideline.settings import Warehouse
from tideline.warehouse.access import storage_options
from tideline_spark.failures import SparkFailure, is_conflict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_S = 240.0
_T = TypeVar("_T")


@pytest.fixture
def tables(spark_on_s3: SparkSession, s3: S3Server, tmp_path: Path) -> EveryMode:
    return filled(tmp_path, place_in(s3))


def filled(root: Path, place: Warehouse, **settings: Any) -> EveryMode:
    made = EveryMode(root, seed=5, place=place, **settings)
    made.fill()
    return made


class TestOtherWriters:
    @pytest.mark.long
    def test_two_merges_and_maintenance(self, spark: SparkSession, tables: EveryMode) -> None:
        merged(spark, tables)
        counts = Counter[str]()
        Races(spark, tables, counts).merges()
        assert counts["merge applied"] >= 1, counts

    def test_a_run_that_comes_back_from_the_dead(
        self, spark: SparkSession, tables: EveryMode
    ) -> None:
        """It stood before its commits while another run of its plan ended, and a later plan's."""
        merged(spark, tables)
        tables.more(16)
        held, revived = threading.Event(), threading.Event()

        def hold(point: str) -> None:
            if point == "before-commit":
                held.set()
                assert revived.wait(_PATIENCE_S)

        plan_id = unique("zombie")
        with ThreadPoolExecutor(1) as pool:
            zombie = pool.submit(Jobs(spark.newSession(), tables, hold).merge, plan_id)
            assert held.wait(_PATIENCE_S)
            Jobs(spark, tables).merge(plan_id)
            tables.more(16)
            merged(spark, tables)
            versions = logged(tables)
            revived.set()
            late = zombie.result(_PATIENCE_S)
        assert {one.outcome for one in late.tables} <= {
            Outcome.ALREADY_APPLIED,
            Outcome.REFUSED,
        }, late
        assert logged(tables) == versions
        tables.check()

    @pytest.mark.long
    def test_delta_rs(self, spark: SparkSession, tables: EveryMode) -> None:
        """Each of its commits is a version of the table, and so is each of ours."""
        merged(spark, tables)
        url, options = tables.history.target(NOW), dict(storage_options(place_of(tables)))
        before = DeltaTable(url, storage_options=options).version()
        committed = beside(lambda: rewrite(url, options), lambda: merge_more(spark, tables))
        log = DeltaTable(url, storage_options=options).history()
        theirs = [one for one in log if "delta-rs" in str(one.get("clientVersion", ""))]
        assert len(theirs) == committed > 0
        assert len(log) - 1 == DeltaTable(url, storage_options=options).version() > before
        tables.check()


@pytest.fixture(scope="module")
def faults(s3: S3Server, spark: SparkSession) -> Iterator[S3Faults]:
    with S3Faults(s3) as faults:
        # A request that a test holds must not be repeated meanwhile.
        place = place_in(s3, "troubled", endpoint=faults.endpoint)
        reach(spark, place, timeout_s=_PATIENCE_S)
        yield faults


@pytest.fixture
def troubled(faults: S3Faults, s3: S3Server, tmp_path: Path) -> Iterator[EveryMode]:
    """The tables, with the proxy before the server; what is read to check them goes past it."""
    yield filled(tmp_path, place_in(s3, "troubled"), merge={"retry_s": 2.0})
    faults.heal()


SMALL_MERGE = Counter({"head": 17, "get": 13, "list": 9, "put": 1, "create": 1})
"""What Spark asks of S3, at most, to merge a few rows into one table with a short log: one or two
requests of a kind more than it does. Each waits for the one before it."""

PASSING = {
    "500": Trouble(status=500),
    "slow down": Trouble(status=503, code="SlowDown"),
    "conflict": Trouble(status=409, code="ConditionalRequestConflict"),
    "dropped": Trouble(dropped=True),
}


class TestOptimize:
    """Of somebody else's, beside a merge: one stands at its commit while the other one commits."""

    def test_a_merge_is_overtaken(
        self, spark: SparkSession, faults: S3Faults, troubled: EveryMode
    ) -> None:
        two_files(spark, troubled)
        merge = overtaken(
            faults,
            lambda: Jobs(spark, troubled).merge(unique("overtaken"), NOW),
            lambda: optimized(spark.newSession(), troubled),
        )
        (table,) = merge.tables
        assert (table.outcome, table.conflicts) == (Outcome.APPLIED, 1), table
        assert operations(troubled)[-2:] == ["OPTIMIZE", "MERGE"]
        troubled.check(NOW)

    @pytest.mark.long
    def test_an_optimize_is_overtaken(
        self, spark: SparkSession, faults: S3Faults, troubled: EveryMode
    ) -> None:
        two_files(spark, troubled)
        after = ["MERGE"]
        try:
            overtaken(
                faults,
                lambda: optimized(spark.newSession(), troubled),
                lambda: merged(spark, troubled, NOW),
            )
            after.append("OPTIMIZE")  # What it puts together, the merge has left alone.
        except SparkFailure as refused:
            assert is_conflict(refused)
        assert operations(troubled)[-len(after) :] == after
        troubled.check(NOW)


class TestStoreInTrouble:
    @pytest.mark.parametrize("effect", [False, True], ids=["before", "after"])
    def test_passing_trouble_is_not_seen(
        self, spark: SparkSession, faults: S3Faults, troubled: EveryMode, effect: bool
    ) -> None:
        """Of every kind of request one of each trouble, before or after its effect."""
        merged(spark, troubled, NOW)
        for name, pattern in PASSING.items():
            kinds: tuple[Kind, ...] = ("create",) if name == "conflict" else (
                "put", "create", "get", "head", "list",
            )  # fmt: skip
            met = {kind: faults.add(spoiled(pattern, kind, effect=effect)) for kind in kinds}
            troubled.more(8)
            merged(spark, troubled, NOW)
            assert {kind: one.met for kind, one in met.items()} == dict.fromkeys(kinds, 1), name
            faults.heal()
        troubled.check(NOW)

    @pytest.mark.parametrize(
        ("trouble", "named"),
        [
            (
                Trouble(kind="create", times=ALWAYS, status=503, code="SlowDown"),
                "AWSServiceThrottledException",
            ),
            (
                Trouble(kind="get", key="public/now", times=ALWAYS, dropped=True),
                "NoHttpResponseException",
            ),
        ],
        ids=["no commits", "no reads"],
    )
    def test_lasting_trouble_is_named_and_the_next_run_goes_on(
        self,
        spark: SparkSession,
        faults: S3Faults,
        troubled: EveryMode,
        trouble: Trouble,
        named: str,
    ) -> None:
        """What is refused for good is in `test_s3_refusals`, silence in `test_s3_silence`."""
        merged(spark, troubled, NOW)
        troubled.more(8)
        faults.add(trouble)
        (failed,) = Jobs(spark, troubled).merge(unique("troubled"), NOW).tables
        assert trouble.met >= 1
        assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, Unavailable.__name__)
        assert "gave no usable answer" in str(failed.error) and named in str(failed.error), failed
        faults.heal()
        before = Counter(faults.seen)
        merged(spark, troubled, NOW)
        asked = faults.seen - before
        assert not asked - SMALL_MERGE, asked
        troubled.check(NOW)


def spoiled(pattern: Trouble, kind: Kind, *, effect: bool) -> Trouble:
    return Trouble(
        kind=kind,
        key="public/now",
        status=pattern.status,
        code=pattern.code,
        dropped=pattern.dropped,
        effect=effect,
    )


def merged(spark: SparkSession, tables: EveryMode, *names: str) -> None:
    """A merge that nobody disturbs for good."""
    for one in Jobs(spark, tables).merge(unique("merged"), *names).tables:
        assert one.outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED), one.error


def two_files(spark: SparkSession, tables: EveryMode) -> None:
    """Merge `NOW` twice, so that it has files to put together, and let there be more to merge."""
    for _ in range(2):
        merged(spark, tables, NOW)
        tables.more(8)


def optimized(spark: SparkSession, tables: EveryMode) -> None:
    spark.sql(f"OPTIMIZE delta.`{tables.history.target(NOW)}`").collect()


def overtaken(faults: S3Faults, work: Callable[[], _T], other: Callable[[], object]) -> _T:
    """Do ``work``, whose first commit reaches S3 only when ``other`` is done."""
    held, done = threading.Event(), threading.Event()

    def hold(when: str, request: Request) -> None:
        if request.kind == "create" and when == "before" and not held.is_set():
            held.set()
            assert done.wait(_PATIENCE_S)

    with faults.watched(hold), ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            assert held.wait(_PATIENCE_S)
            other()
        finally:
            done.set()
        return working.result(_PATIENCE_S)


def operations(tables: EveryMode) -> list[str]:
    """Those of the versions of `NOW`, oldest first."""
    options = dict(storage_options(place_of(tables)))
    log = DeltaTable(tables.history.target(NOW), storage_options=options).history()
    return [str(one["operation"]) for one in reversed(log)]


def merge_more(spark: SparkSession, tables: EveryMode) -> None:
    for _ in range(3):
        tables.more(8)
        merged(spark, tables)


def beside(other: Callable[[], bool], work: Callable[[], None]) -> int:
    """Do ``work``, and ``other`` again and again until it is done; how often that succeeded."""
    done = threading.Event()

    def again() -> int:
        count = 0
        while not done.is_set():
            count += other()
        return count

    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(again)
        try:
            work()
        finally:
            done.set()
        return counted.result(_PATIENCE_S)


def rewrite(url: str, options: dict[str, str]) -> bool:
    """Append no row to the table by delta-rs, so that what it holds stays as it is."""
    table = DeltaTable(url, storage_options=options)
    empty = pa.schema(table.schema().to_arrow()).empty_table()
    try:
        write_deltalake(table, empty, mode="append")
    except CommitFailedError:
        return False
    return True


def place_of(tables: EveryMode) -> Warehouse:
    assert tables.place is not None
    return tables.place


def logged(tables: EveryMode) -> dict[str, int]:
    """The newest version of each table."""
    options = dict(storage_options(place_of(tables)))
    urls = {name: tables.history.target(name) for name in KEYED}
    return {n: DeltaTable(url, storage_options=options).version() for n, url in urls.items()}
