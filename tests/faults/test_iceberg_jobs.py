"""Merges and maintenance of Iceberg tables that die anywhere, and that are raced: as for Delta
tables, with the same words of what must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devtools.services.s3 import S3Server
from tests.faults.deaths import Deaths
from tests.faults.deaths_of_merges import die_anywhere
from tests.faults.every_mode import LOG, NOW, PAST, EveryMode
from tests.faults.iceberg_tables import iceberg_in
from tests.faults.jobs import Jobs, unique
from tests.faults.kills import At, command, config_of, kill_at
from tests.faults.races import Races, race_merges
from tests.faults.s3_faults import S3Faults
from tests.faults.troubles import Troubles
from tests.fixtures.object_storage import place_in, reach, require_s3
from tideline.contract.modes import Mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMS = ("merge applied", "merge already_applied", "merge refused", "merge failed")


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> EveryMode:
    """Tables in every mode, which appear."""
    root = tmp_path / "root"
    made = EveryMode(root, seed=12, place=iceberg_in(spark, root))
    made.fill()
    return made


@pytest.mark.timeout(900)
def test_merges_that_die_anywhere_end_as_undisturbed_ones(
    spark: SparkSession, tables: EveryMode
) -> None:
    """Made, then changed with a step of their columns, with parts that were ruined in between."""
    die_anywhere(spark, tables)


@pytest.mark.timeout(900)
def test_two_merges_race_maintenance_and_a_verification(
    spark: SparkSession, tables: EveryMode
) -> None:
    counts = race_merges(spark, tables)
    assert sum(counts[one] for one in SUMS) == 8, counts


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_warehouse_lives_through_everything(spark: SparkSession, tables: EveryMode) -> None:
    """One life: what a job leaves is whole at each of its deaths, and from one of them it goes on
    to the same end."""
    counts = Counter[str]()
    deaths = Deaths(spark, tables, counts, seed=3, recoveries=2, moments=6)
    troubles, races = Troubles(spark, tables, counts, seed=9), Races(spark, tables, counts)
    deaths.merge("first")
    tables.more(16, step=True)
    plan = troubles.waiting(NOW, LOG)
    troubles.full_disk(plan, 400)
    assert counts["full disk"] == 2
    troubles.ruined_parts(plan, {NOW: "flipped", LOG: "gone"})
    deaths.merge(plan.plan_id, NOW, LOG)
    troubles.ruined_verification("torn")
    races.merges(NOW)
    deaths.verify()
    deaths.rebuild(twice=False)
    deaths.maintain(NOW)
    races.rebuilds(PAST, Mode.HISTORY)
    deaths.replay()
    assert counts["images"] >= 15, counts
    assert counts["taken up"] == 10, counts


@pytest.fixture(scope="module")
def faults(s3: S3Server, spark: SparkSession) -> Iterator[S3Faults]:
    """Spark's way to the server."""
    require_s3()
    with S3Faults(s3) as made:
        reach(spark, place_in(s3, "killed", endpoint=made.endpoint))
        yield made


METADATA = "/public/now/metadata/"
KILLED = [
    At("before", "put", METADATA),
    At("after", "put", METADATA),
    At("before", "put", ".metadata.json"),
    At("after", "put", ".metadata.json"),
    At("before", "put", ".metadata.json", 2),
    At("before", "put", "/receipts/"),
    At("after", "put", "/receipts/"),
]
"""Around a table's commit, which follows when its new metadata is in S3: some tables have theirs
by then, and others do not."""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("at", KILLED, ids=str)
def test_a_merge_in_s3_is_killed_and_the_next_run_ends_right(
    spark: SparkSession, s3: S3Server, faults: S3Faults, tmp_path: Path, at: At
) -> None:
    """For real: the process group, while the request is under way."""
    root = tmp_path / "root"
    tables = EveryMode(root, seed=13, place=iceberg_in(spark, root, place_in(s3, "killed")))
    tables.fill()
    jobs = Jobs(spark, tables)
    jobs.merge("first")
    tables.more(16)
    config = config_of(tables, endpoint=faults.endpoint)
    assert kill_at(command(("merge",), config), at, faults)
    jobs.merge(unique("again"))
    tables.check()
