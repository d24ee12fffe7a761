"""Merges of BigQuery tables that die anywhere, and that are raced: as for tables of files, with the
same words of what must hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devtools.bigquery.faults import Call
from tests.faults.bigquery_tables import BigQueryTables
from tests.faults.camera import Through
from tests.faults.deaths_of_merges import die_anywhere
from tests.faults.every_mode import EveryMode
from tests.faults.jobs import Jobs, unique
from tests.faults.kills import AtJob, command, config_of, kill_at
from tests.faults.races import race_merges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.fixtures.bigquery import Dataset


@pytest.fixture
def tables(spark: SparkSession, dataset: Dataset, tmp_path: Path) -> EveryMode:
    """Tables in every mode, which appear."""
    root = tmp_path / "root"
    bigquery = BigQueryTables(dataset).reached_by(spark, root)
    made = EveryMode(root, seed=12, place=bigquery.place, bigquery=bigquery)
    made.fill()
    return made


def a_job(call: Call) -> bool:
    """Whether it makes a job of ours that changes a target or its log."""
    return call.job_id is not None and call.job_id.startswith("tideline-")


@pytest.mark.timeout(900)
def test_merges_that_die_anywhere_end_as_undisturbed_ones(
    spark: SparkSession, tables: EveryMode, dataset: Dataset
) -> None:
    """Made, then changed with a step of their columns, with parts that were ruined in between; each
    also after each of its jobs, and so before the next."""
    counts = die_anywhere(spark, tables, Through(dataset.front, a_job, {"after"}))
    assert counts["merge at a request"] >= 20, counts


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_merges_race_maintenance_and_a_verification(
    spark: SparkSession, tables: EveryMode
) -> None:
    race_merges(spark, tables)


KILLED = [AtJob(when, nth) for when in ("before", "after") for nth in (1, 2, 5)]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("at", KILLED, ids=str)
def test_a_merge_is_killed_and_the_next_run_ends_right(
    spark: SparkSession, tables: EveryMode, dataset: Dataset, at: AtJob
) -> None:
    """For real: the process group, while the request is under way."""
    jobs = Jobs(spark, tables)
    jobs.merge("first")
    tables.more(16, step=True)
    assert kill_at(command(("merge",), config_of(tables)), at, dataset.front)
    jobs.merge(unique("again"))
    tables.check()
