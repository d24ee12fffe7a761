"""Merges of BigQuery tables that die anywhere, and that are raced: as for tables of files, with the
same words of what must hold. And moves from and to BigQuery that are killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devtools.bigquery.faults import Call
from tests.faults.bigquery_tables import BigQueryTables
from tests.faults.camera import Through
from tests.faults.deaths_of_merges import die_anywhere
from tests.faults.every_mode import BAG, LOG, NOW, PAST, EveryMode
from tests.faults.jobs import Jobs, unique
from tests.faults.kills import AtJob, AtWrite, command, config_for, config_of, kill_at
from tests.faults.races import race_merges
from tests.faults.shared_spark import shared_command, shared_environment
from tests.spark.moving import (
    BY_BIGQUERY,
    T,
    answered,
    eventful,
    history_by_bigquery,
    history_in,
    keeps,
    row,
    rows_at,
    url_of,
)
from tideline.contract.modes import Mode
from tideline.contract.target_url import table_format_of
from tideline.warehouse.bigquery.log import read_log
from tideline.warehouse.bigquery.names import name_of, target_of_staged

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


@dataclass
class KilledMerges:
    """Merges of one table, each of which is killed at one more of its requests."""

    spark: SparkSession
    tables: EveryMode
    dataset: Dataset
    table: str

    def each(self, prepare: Callable[[], object], *, late: bool) -> int:
        """Have what `prepare` has left merged by a driver that dies at its first request, and then
        by one that lives; and so on with the second, until none is left to die at. With ``late``,
        the driver dies at jobs, which end when the one that lives has ended. Return how many times
        one died."""
        jobs = Jobs(self.spark, self.tables)
        for nth in count(1):
            prepare()
            killed = self._kill(nth, late=late)
            left = self._staged()
            jobs.merge(unique("again"), self.table)
            self._check(left)
            for one in self._running():
                self.dataset.front.jobs.finish(one)
            left |= self._staged()  # Of the one that died, which was making it.
            self._check(left)
            if not killed:
                assert not left, "a merge that ended has removed what it staged"
                return nth - 1
            self._expire(left)
        raise AssertionError("a merge has no end")

    def _kill(self, nth: int, *, late: bool) -> bool:
        """Have a driver merge the table, and die at its ``nth`` request."""
        front = self.dataset.front
        if late:
            for polls in (*[0] * (nth - 1), 2):
                front.keep_running(polls)
        line = shared_command(("merge", self.table), config_of(self.tables))
        at = AtWrite("after", nth, jobs=late)
        return kill_at(line, at, front, shared_environment(self.spark))

    def _running(self) -> list[str]:
        known = self.dataset.front.jobs.known().jobs
        return [name for (_, name), job in known.items() if job.state != "DONE"]

    def _check(self, left: set[str]) -> None:
        """The table holds what it must, its log is whole, and no rows are staged but those of the
        one that died, which expire."""
        self.tables.check(self.table)
        name = name_of(self.tables.history.target(self.table))
        log = read_log(self.dataset.client, name)
        assert [one.version for one in log.commits] == [*range(log.version, -2, -1)]
        newest = self.dataset.rows(f"SELECT version FROM {name.log.sql} WHERE newest")  # noqa: S608
        assert newest == [(log.version,)] and log.commits[0].pending is None
        assert self._staged() <= left

    def _staged(self) -> set[str]:
        """The tables of staged rows; each must be one that expires."""
        known = self.dataset.front.jobs.known().jobs.values()
        makes = [one.configuration.get("query", {}).get("query", "") for one in known]
        assert self.tables.bigquery is not None
        found = {one for one in self.tables.bigquery.names() if target_of_staged(one) is not None}
        for name in found:
            (sql,) = [one for one in makes if one.startswith("CREATE TABLE") and name in one]
            assert "expiration_timestamp" in sql
        return found

    def _expire(self, names: set[str]) -> None:
        """Remove tables as BigQuery does, once they are a day old."""
        target = name_of(self.tables.history.target(self.table))
        for name in names:
            self.dataset.direct.delete_table(str(target._replace(table=name)))


CHANGED = [(NOW, False), (NOW, True), (PAST, False), (LOG, False), (BAG, False)]


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("late", [False, True], ids=["", "late"])
@pytest.mark.parametrize(("table", "step"), CHANGED)
def test_a_merge_is_killed_at_each_of_its_requests(
    spark: SparkSession, tables: EveryMode, dataset: Dataset, table: str, step: bool, late: bool
) -> None:
    """The driver alone (`shared_spark`), for real: rows that are staged, loaded, looked up, merged
    and unstaged, with a step of the columns or without."""
    Jobs(spark, tables).merge("first")
    killed = KilledMerges(spark, tables, dataset, table)
    times = killed.each(lambda: tables.more(8, step=step), late=late)
    assert times >= (3 if late else 4), times


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("late", [False, True], ids=["", "late"])
def test_a_merge_that_makes_the_table_is_killed_at_each_of_its_requests(
    spark: SparkSession, tables: EveryMode, dataset: Dataset, late: bool
) -> None:
    """With its dataset and its log."""
    assert tables.bigquery is not None
    killed = KilledMerges(spark, tables, dataset, NOW)
    times = killed.each(tables.bigquery.remove, late=late)
    assert times >= (6 if late else 8), times


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("held", "to"), BY_BIGQUERY)
def test_a_move_is_killed_at_its_requests_and_gone_on_with(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    dataset: Dataset,
    tmp_path: Path,
    held: str,
    to: str,
) -> None:
    """Each time at one more of them; between two runs a change comes, which is merged at once or
    waits."""
    history = history_by_bigquery(tmp_path / "moved", request, held, keeps(Mode.HISTORY))
    eventful(history, spark)
    former, tables = url_of(history), {T: keeps(Mode.HISTORY)}
    config = config_for(tmp_path / "tideline.toml", history, history.settings.warehouse, tables)
    line = shared_command(("rebuild", T, "--to", to), config)
    for nth in count(1):
        killed = kill_at(line, AtWrite("after", nth), dataset.front, shared_environment(spark))
        history.commit(row("c", 100 + nth, "new", "meanwhile"))
        if nth % 2 or not killed:
            assert answered(history.merge(spark)) == [("applied", None)]
        if not killed:
            break
    assert nth > (4 if to == "bigquery" else 1), nth
    assert (table_format_of(former), table_format_of(url_of(history))) == (held, to)
    moved = rows_at(spark, url_of(history))
    stayed = history_in(tmp_path / "stayed", spark, "delta", keeps(Mode.HISTORY))
    eventful(stayed, spark)
    stayed.commit(*(row("c", 100 + at, "new", "meanwhile") for at in range(1, nth + 1)))
    assert answered(stayed.merge(spark)) == [("applied", None)]
    assert moved == rows_at(spark, url_of(stayed))
