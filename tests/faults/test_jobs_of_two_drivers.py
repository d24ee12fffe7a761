"""One table in S3, and more than one driver: processes with a JVM each, which share nothing else.

The one JVM of the test run plays the other driver where a second process would show no more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devtools.services.s3 import S3Server
from tests.faults.drivers import Driver, gate, log_of, numbers_of, settings_file
from tests.faults.every_mode import NOW, EveryMode
from tests.faults.jobs import Jobs, unique
from tests.faults.kills import command
from tests.faults.s3_faults import S3Faults
from tests.fixtures.object_storage import place_in
from tests.support.log_stores import plain_create_jar
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.warehouse.delta.jars import delta_jars
from tideline.warehouse.job_jars import every_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

MERGE = ("merge", NOW)
TAKEN = 412
"""What S3 answers to a create-only PUT where an object is."""


@pytest.fixture(scope="module")
def faults(s3: S3Server) -> Iterator[S3Faults]:
    """The processes' way to the server; the run's own JVM goes past it."""
    with S3Faults(s3) as made:
        yield made


@pytest.fixture
def tables(spark_on_s3: SparkSession, s3: S3Server, tmp_path: Path) -> EveryMode:
    """`NOW` is there and merged, and changes wait."""
    made = EveryMode(tmp_path / "root", seed=7, place=place_in(s3))
    made.fill()
    merge_here(spark_on_s3, made)
    made.more(16)
    return made


def merge_here(spark: SparkSession, tables: EveryMode) -> None:
    """All that waits is merged by the run's own JVM."""
    (one,) = Jobs(spark, tables).merge(unique("here"), NOW).tables
    assert one.outcome is Outcome.APPLIED, one


def late(
    spark: SparkSession, tables: EveryMode, faults: S3Faults, jars: list[Path] | None = None
) -> tuple[TableReceipt, bool]:
    """Stop a driver while its commit is under way; another one merges the same, and then a later
    plan. What the first one came to, and whether the log is then as it was before it went on."""
    line = command(MERGE, settings_file(tables, faults, jars))
    with (
        Driver(line, tables.root.parent / "zombie") as zombie,
        gate(faults, tables.target(NOW)) as commits,
    ):
        commits.wait(zombie)
        zombie.stop()
        merge_here(spark, tables)
        tables.more(16)
        merge_here(spark, tables)
        before = log_of(tables, NOW)
        taken = commits.held[0].key.rpartition("/")[2]
        assert max(before) > taken in before
        zombie.go_on()
        commits.open()
        return zombie.receipt(tables), log_of(tables, NOW) == before


def test_a_driver_that_comes_back_from_the_dead_replaces_no_commit(
    spark_on_s3: SparkSession, tables: EveryMode, faults: S3Faults
) -> None:
    receipt, unchanged = late(spark_on_s3, tables, faults)
    assert receipt.outcome in (Outcome.ALREADY_APPLIED, Outcome.REFUSED), receipt
    assert unchanged
    tables.check(NOW)


@pytest.mark.long
def test_with_a_plain_create_it_replaces_one(
    spark_on_s3: SparkSession, tables: EveryMode, faults: S3Faults, tmp_path: Path
) -> None:
    """The mutant shows that the commit comes as late as it has to."""
    ours = [jar for jar in every_jar() if jar.name != "tideline-log-stores.jar"]
    mutant = plain_create_jar(tmp_path / "mutant", delta_jars())
    receipt, unchanged = late(spark_on_s3, tables, faults, [*ours, mutant])
    assert (receipt.outcome, unchanged) == (Outcome.APPLIED, False)


@pytest.mark.long
def test_of_two_merges_at_the_same_entry_one_commits(
    tables: EveryMode, faults: S3Faults, tmp_path: Path
) -> None:
    line = command(MERGE, settings_file(tables, faults))
    before = log_of(tables, NOW)
    with ExitStack() as stack:
        two = [stack.enter_context(Driver(line, tmp_path / name)) for name in ("one", "other")]
        commits = stack.enter_context(gate(faults, tables.target(NOW), 2))
        commits.wait(*two)
        assert len({one.key for one in commits.held}) == 1, commits.held
        commits.open()
        outcomes = sorted(one.receipt(tables).outcome.value for one in two)
    assert outcomes == sorted((Outcome.APPLIED.value, Outcome.ALREADY_APPLIED.value))
    log = log_of(tables, NOW)
    assert log.items() > before.items()
    numbers = numbers_of(log)
    assert numbers == sorted(set(numbers))
    tables.check(NOW)


@pytest.mark.long
def test_a_commit_that_the_network_delivers_late_or_twice_changes_nothing(
    spark_on_s3: SparkSession, tables: EveryMode, faults: S3Faults, tmp_path: Path
) -> None:
    """That of a driver which is dead by then, and of one which has long ended well."""
    line = command(MERGE, settings_file(tables, faults))
    with (
        Driver(line, tmp_path / "dead") as dead,
        gate(faults, tables.target(NOW)) as first,
    ):
        first.wait(dead)
        dead.kill()
        first.open(cut=True)
    with (
        Driver(line, tmp_path / "well") as well,
        gate(faults, tables.target(NOW)) as second,
    ):
        second.wait(well)
        second.open()
        assert well.receipt(tables).outcome is Outcome.APPLIED
    assert first.held[0].key == second.held[0].key
    assert first.held[0].body != second.held[0].body
    tables.more(16)
    merge_here(spark_on_s3, tables)
    before = log_of(tables, NOW)
    answers = [faults.send(one)[0] for one in (*second.held, *first.held)]
    assert log_of(tables, NOW) == before
    assert answers == [TAKEN, TAKEN]
    tables.check(NOW)


@pytest.mark.long
def test_somebody_elses_optimize_and_a_merge_lose_no_commit(
    spark_on_s3: SparkSession, tables: EveryMode, faults: S3Faults, tmp_path: Path
) -> None:
    """Each comes once with its commit when the other one has taken its place in the log."""
    merge_here(spark_on_s3, tables)
    config, url = settings_file(tables, faults), tables.history.target(NOW)
    other = [sys.executable, "-m", "tests.faults.optimizer", str(config), url]
    with Driver(other, tmp_path / "other") as optimizer:
        optimizer.wait_lines(1)
        with gate(faults, tables.target(NOW)) as commits:
            optimizer.tell("optimize")
            commits.wait(optimizer)
            tables.more(16)
            merge_here(spark_on_s3, tables)
            merged = log_of(tables, NOW)
            commits.open()
            optimizer.wait_lines(2)
        assert log_of(tables, NOW).items() >= merged.items()
        tables.check(NOW)

        tables.more(16)
        with (
            Driver(command(MERGE, config), tmp_path / "merge") as merge,
            gate(faults, tables.target(NOW)) as commits,
        ):
            commits.wait(merge)
            optimizer.tell("optimize")
            last = optimizer.wait_lines(3)[-1]
            optimized = log_of(tables, NOW)
            commits.open()
            receipt = merge.receipt(tables)
        assert receipt.outcome is Outcome.APPLIED and receipt.conflicts >= 1, receipt
        assert last.startswith("optimized") and last != "optimized 0", last
        assert commits.held[0].key.rpartition("/")[2] in optimized
        assert log_of(tables, NOW).items() > optimized.items()
        tables.check(NOW)
