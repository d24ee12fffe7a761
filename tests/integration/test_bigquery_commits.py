# ruff: noqa: S608  statements are made of names and literals of ours
"""Commits to a table and its log, without Spark: of two runs one commits, and what a run has left
undone the next one does, whatever becomes of requests, answers and jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from google.cloud.bigquery.retry import DEFAULT_RETRY

from devtools.bigquery.faults import BigQueryFault, Call
from tests.fixtures.bigquery import Dataset
from tideline.contract.errors import TidelineError, Unavailable
from tideline.warehouse.bigquery.client import BigQueryPlace
from tideline.warehouse.bigquery.log import CommitLog
from tideline.warehouse.bigquery.names import PLACE_SETTING
from tideline_spark.formats.bigquery.access import BigQueryAccess, after
from tideline_spark.formats.bigquery.jobs import TargetOvertaken

APP = "shop/one/shop.t"


class _Session:
    """As much of a session of Spark as is needed."""

    def __init__(self, place: BigQueryPlace) -> None:
        self.conf = {PLACE_SETTING: place.text()}


class Died(BaseException):
    """The process was killed: nothing of it happens any more."""


@dataclass
class Table:
    """A table in the test's dataset; `made` with one row."""

    dataset: Dataset

    def access(self) -> BigQueryAccess:
        """By a run of its own, which does not pause."""
        place = BigQueryPlace("tideline", "US", endpoint=self.dataset.front.endpoint)
        session: Any = _Session(place)
        made = BigQueryAccess(session, f"bigquery://tideline/{self.dataset.name}/t")
        made.jobs._sleep = lambda pause_s: None
        return made

    @property
    def name(self) -> str:
        return f"`tideline`.`{self.dataset.name}`.`t`"

    def make(self) -> CommitLog:
        """Make it, with a row, as version 0."""
        access = self.access()
        log = access.make_log()
        entry = after(log, None, "CREATE", changes_data=True, columns={"id": "long"})
        sql = f"CREATE OR REPLACE TABLE {self.name} (id INT64) AS SELECT 0 AS id"
        return access.declare(log, sql, entry, "to make it")

    def add(self, number: int, access: BigQueryAccess | None = None) -> bool:
        """Add a row as the commit of a number, unless that was done; return whether it was now."""
        access = access or self.access()
        log = access.read()
        if log.entry.applied.get(APP, -1) >= number:
            return False
        entry = after(log, None, "MERGE", changes_data=True, numbers={APP: number})
        access.commit(log, [f"INSERT {self.name} (id) VALUES ({number})"], entry, "to add a row")
        return True

    def widen(self, access: BigQueryAccess | None = None) -> CommitLog:
        """Give it another column, unless that was done."""
        access = access or self.access()
        log = access.read()
        if "more" in log.entry.columns:
            return log
        entry = after(log, None, "ALTER", columns={"id": "long", "more": "string"})
        sql = f"ALTER TABLE {self.name} ADD COLUMN more STRING"
        return access.declare(log, sql, entry, "to change the columns")

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        found = self.dataset.direct.query(f"SELECT * FROM {self.name}").result()
        return sorted(tuple(row) for row in found)

    def check(self, *rows: tuple[Any, ...], version: int) -> None:
        """Check the rows, and that the log is whole: a row for each version, one of them newest."""
        assert self.rows == sorted(rows)
        log = self.access().read()
        assert [one.version for one in log.commits] == [*range(version, -2, -1)]
        assert log.version == version, "no change by others"
        name = self.access().name.log.sql
        newest = self.dataset.direct.query(f"SELECT version FROM {name} WHERE newest").result()
        assert [row[0] for row in newest] == [version]


@pytest.fixture
def table(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(DEFAULT_RETRY, "_initial", 0.001)
    monkeypatch.setattr(DEFAULT_RETRY, "_maximum", 0.01)
    made = Table(dataset)
    made.make()
    return made


@pytest.mark.parametrize("fault", [BigQueryFault.ANSWER_LOST, BigQueryFault.JOB_FAILS])
def test_a_commit_is_made_once_whatever_becomes_of_its_request(
    table: Table, fault: BigQueryFault
) -> None:
    table.dataset.front.fail_next(fault)
    assert table.add(1)
    assert not table.add(1)
    table.check((0,), (1,), version=1)


@pytest.mark.parametrize(
    ("at", "fault"),
    [
        (0, BigQueryFault.ANSWER_LOST),
        (1, BigQueryFault.ANSWER_LOST),
        (1, BigQueryFault.JOB_FAILS),
        (2, BigQueryFault.ANSWER_LOST),
    ],
)
def test_columns_change_once_whatever_becomes_of_a_request(
    table: Table, fault: BigQueryFault, at: int
) -> None:
    """The three: what is to be done is declared, done, and recorded."""
    table.dataset.front.fail_next(*[None] * at, fault)
    table.widen()
    assert table.dataset.front.unmet == []
    assert table.add(1)
    table.check((0, None), (1, None), version=2)


def test_columns_that_could_not_be_changed_are_changed_another_time(table: Table) -> None:
    """Nothing is pending then, and what was declared once is declared again."""
    table.dataset.front.fail_next(None, BigQueryFault.JOB_REFUSED)
    with pytest.raises(Unavailable, match="quotaExceeded"):
        table.widen()
    assert table.access().read().commits[0].pending is None
    table.check((0,), version=0)
    table.widen()
    table.check((0, None), version=1)


@pytest.mark.parametrize(
    ("at", "when"), [(0, "before"), (0, "after"), (1, "after"), (2, "before"), (2, "after")]
)
def test_a_run_that_dies_is_completed_by_the_next(table: Table, at: int, when: str) -> None:
    """Around each of the three jobs. The next run is another, which has another thing to do."""
    _die(table, at, when, lambda access: table.widen(access))
    assert table.add(1)
    declared = (at, when) != (0, "before")
    if declared:
        table.check((0, None), (1, None), version=2)
    else:
        table.check((0,), (1,), version=1)
    table.widen()
    table.check((0, None), (1, None), version=2)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_dies_is_whole_or_nothing(table: Table, when: str) -> None:
    _die(table, 0, when, lambda access: table.add(1, access))
    assert table.add(1) == (when == "before")
    table.check((0,), (1,), version=1)


def _die(table: Table, at: int, when: str, work: Callable[[BigQueryAccess], object]) -> None:
    """Have a run die before or after the effect of the job number ``at`` that it makes."""
    access, jobs = table.access(), iter(range(100))
    http = access.client._http
    send = http.request

    def request(method: str, url: str, *given: Any, **more: Any) -> Any:
        ends = method == "POST" and url.partition("?")[0].endswith("/jobs") and next(jobs) == at
        if ends and when == "before":
            raise Died
        answer = send(method, url, *given, **more)
        if ends:
            raise Died
        return answer

    http.request = request
    with pytest.raises(Died):
        work(access)


def test_of_two_runs_that_read_the_same_one_commits(table: Table) -> None:
    """Of a longer plan and a shorter one, too: the log's version is the fence."""
    fast, slow = table.access(), table.access()
    logs = [one.read() for one in (fast, slow)]
    entries = [
        after(log, None, "MERGE", changes_data=True, numbers={APP: number})
        for log, number in zip(logs, (5, 3), strict=True)
    ]
    fast.commit(logs[0], [f"INSERT {table.name} (id) VALUES (5)"], entries[0], "to add")
    with pytest.raises(TargetOvertaken):
        slow.commit(logs[1], [f"INSERT {table.name} (id) VALUES (3)"], entries[1], "to add")
    table.check((0,), (5,), version=1)
    assert not table.add(3), "a later plan was applied"


def test_a_run_that_others_overtake_behind_its_last_look_is_refused(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the script's own look at the log, in its transaction."""
    slow = table.access()
    log = slow.read()
    entry = after(log, None, "MERGE", changes_data=True, numbers={APP: 3})
    monkeypatch.setattr(BigQueryAccess, "_check_unchanged", lambda *given: None)
    assert table.add(5)
    with pytest.raises(TargetOvertaken):
        slow.commit(log, [f"INSERT {table.name} (id) VALUES (3)"], entry, "to add")
    table.check((0,), (5,), version=1)


@pytest.mark.parametrize("job", [0, 1])
def test_two_runs_that_change_the_columns_change_them_once(table: Table, job: int) -> None:
    """The second comes when the first has made its job of that number; it completes what it finds,
    or is overtaken, and starts again."""
    first_is_there, second_is_done = threading.Event(), threading.Event()
    jobs = iter(range(100))

    def meet(when: str, call: Call) -> None:
        if when == "after" and call.job_id and not first_is_there.is_set() and next(jobs) == job:
            first_is_there.set()
            assert second_is_done.wait(60)

    def again() -> None:
        try:
            table.widen()
        except TargetOvertaken:
            table.widen()

    with ThreadPoolExecutor(2) as pool, table.dataset.front.watched(meet):
        first = pool.submit(again)
        assert first_is_there.wait(60)
        try:
            again()
        finally:
            second_is_done.set()
        first.result(60)
    table.check((0, None), version=1)


def test_a_declared_change_that_fails_in_the_next_run_is_its_error(table: Table) -> None:
    """And it is gone by then, so that the run after it goes on."""
    _die(table, 0, "after", lambda access: table.widen(access))
    table.dataset.front.fail_next(BigQueryFault.JOB_REFUSED)
    with pytest.raises(TidelineError, match="quotaExceeded"):
        table.access().read()
    table.check((0,), version=0)


def test_a_change_by_others_since_the_look_is_not_written_over(table: Table) -> None:
    access = table.access()
    log = access.read()
    entry = after(log, None, "MERGE", changes_data=True, numbers={APP: 1})
    table.dataset.client.query(f"UPDATE {table.name} SET id = 77 WHERE TRUE").result()
    with pytest.raises(TargetOvertaken):
        access.commit(log, [f"DELETE FROM {table.name} WHERE TRUE"], entry, "to remove rows")
    assert table.rows == [(77,)]
    assert table.access().read().version == log.version + 1, "theirs"


def test_a_commit_whose_client_was_killed_is_waited_for(table: Table) -> None:
    """Its job runs on, and the next run does not make another."""
    front = table.dataset.front
    front.keep_running(2)
    _die(table, 0, "after", lambda access: table.add(1, access))
    front.calls.clear()
    assert table.add(1)
    jobs = front.jobs.known().jobs
    made = {one.job_id for one in front.calls if one.method == "POST"}
    assert made <= {name for _, name in jobs} and len(made) == 1
    assert [jobs["tideline", str(name)].state for name in made] == ["DONE"]
    assert len([name for name in jobs if name[1].startswith("tideline-")]) == 4, "three made it"
    table.check((0,), (1,), version=1)


def test_a_commit_that_failed_is_made_by_another_run(table: Table) -> None:
    table.dataset.front.fail_next(BigQueryFault.JOB_REFUSED)
    with pytest.raises(Unavailable, match="quotaExceeded"):
        table.add(1)
    assert table.add(1)
    table.check((0,), (1,), version=1)
