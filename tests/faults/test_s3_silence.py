"""Merges into tables in S3 while it is silent: no request waits longer than the settings say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from devtools.services.s3 import S3Server
from tests.faults.every_mode import NOW, EveryMode
from tests.faults.jobs import Jobs, unique
from tests.faults.s3_faults import ALWAYS, Kind, S3Faults, Trouble
from tests.fixtures.object_storage import place_in, reach
from tideline.contract.errors import Unavailable
from tideline.contract.receipt import Outcome, TableReceipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "silent"
TIMEOUT_S = 2.0
ASKED_MAX = 2 * 5 * 2
"""Of one kind, until it is given up: by two tasks at once, by S3A and by Amazon's library below it
(`tideline.warehouse.hadoop`)."""
KINDS: tuple[Kind, ...] = ("create", "put", "get", "head", "list")


@pytest.fixture(scope="module")
def faults(s3: S3Server, spark: SparkSession) -> Iterator[S3Faults]:
    jvm: Any = spark._jvm
    client = jvm.org.apache.hadoop.fs.s3a.impl.AWSClientConfig
    client.setMinimumOperationDuration(jvm.java.time.Duration.ZERO)  # Else S3A waits for 15 s.
    with S3Faults(s3) as faults:
        reach(spark, place_in(s3, BUCKET, endpoint=faults.endpoint), timeout_s=TIMEOUT_S)
        yield faults
    client.resetMinimumOperationDuration()


@pytest.fixture(scope="module")
def tables(faults: S3Faults, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> EveryMode:
    """Merged as far as they are filled; each test leaves them merged. An attempt that fails is not
    repeated: here each request's patience is tested, not a merge's."""
    made = EveryMode(
        tmp_path_factory.mktemp("silent"), seed=5, place=place_in(s3, BUCKET), merge={"retry_s": 0}
    )
    made.fill()
    return made


@pytest.fixture
def jobs(spark: SparkSession, tables: EveryMode, faults: S3Faults) -> Iterator[Jobs]:
    made = Jobs(spark, tables)
    made.merge(unique("before"), NOW)
    tables.more(8)
    yield made
    faults.heal()


def merged(jobs: Jobs) -> TableReceipt:
    (table,) = jobs.merge(unique("silent"), NOW).tables
    return table


@pytest.mark.parametrize("effect", [False, True], ids=["before", "after"])
def test_answers_that_never_come_are_asked_for_again(
    jobs: Jobs, faults: S3Faults, tables: EveryMode, effect: bool
) -> None:
    """One of each kind, before or after its effect: the merge ends right."""
    silent = [
        faults.add(Trouble(kind=kind, key="public/now", silent=True, effect=effect))
        for kind in KINDS
    ]
    table = merged(jobs)
    assert table.outcome is Outcome.APPLIED, table
    assert [one.met for one in silent] == [1] * len(KINDS), silent
    tables.check(NOW)


@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        ("create", True),
        ("put", False),
        ("get", False),
        pytest.param("create", False, marks=pytest.mark.long),
        pytest.param("put", True, marks=pytest.mark.long),
        pytest.param("get", True, marks=pytest.mark.long),
    ],
)
def test_a_silent_store_ends_a_merge_and_the_next_goes_on(
    jobs: Jobs, faults: S3Faults, tables: EveryMode, kind: Kind, effect: bool
) -> None:
    """For good. Of a create after its effect the commit is there and its merge cannot know: the
    next one finds nothing to do."""
    silent = faults.add(
        Trouble(kind=kind, key="public/now", silent=True, effect=effect, times=ALWAYS)
    )
    table = merged(jobs)
    assert (table.outcome, table.error_kind) == (Outcome.FAILED, Unavailable.__name__), table
    assert "gave no usable answer, or none in time" in str(table.error), table
    assert silent.met <= ASKED_MAX, "each wait is bounded, and so must be their number"
    faults.heal()
    for again in jobs.merge(unique("after"), NOW).tables:
        assert again.outcome is Outcome.APPLIED, again
    tables.check(NOW)


def test_slow_lists_are_waited_for(jobs: Jobs, faults: S3Faults, tables: EveryMode) -> None:
    slow = faults.add(Trouble(kind="list", times=ALWAYS, delay_s=TIMEOUT_S / 4))
    table = merged(jobs)
    assert table.outcome is Outcome.APPLIED, table
    assert slow.met >= 1
    tables.check(NOW)
