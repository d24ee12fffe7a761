"""A job does its work once, whatever becomes of requests and answers, and says why where it cannot:
through the stand-in, with its faults."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.cloud import bigquery
from google.cloud.bigquery.retry import DEFAULT_RETRY

from devtools.bigquery.faults import BigQueryFault
from devtools.bigquery.front import BigQueryFront
from tests.fixtures.bigquery import Dataset
from tideline.contract.errors import InvariantBroken, TidelineError, Unavailable
from tideline.warehouse.bigquery.client import BigQueryPlace
from tideline_spark.formats.bigquery.jobs import JobFailed, Jobs, TargetOvertaken

PLACE = BigQueryPlace("tideline", "US")
NAME = "tideline-work"
PASSES = [
    BigQueryFault.REQUEST_LOST,
    BigQueryFault.ANSWER_LOST,
    BigQueryFault.INTERNAL_AFTER,
    BigQueryFault.INTERNAL,
    BigQueryFault.UNAVAILABLE,
    BigQueryFault.RATE_LIMIT,
]


@dataclass
class Work:
    """A table of one column, and jobs that add rows to it."""

    dataset: Dataset
    pauses: list[float] = field(default_factory=list)

    def jobs(self) -> Jobs:
        """Those of a client of its own."""
        return Jobs(self.dataset.front.client(), PLACE, {}, sleep=self.pauses.append)

    def run(self, more: str = "") -> Any:
        add = f"INSERT `{self.dataset.name}`.t (id) VALUES (1)"  # noqa: S608
        sql = f"BEGIN TRANSACTION; {add}; {more} COMMIT TRANSACTION;"
        return self.jobs().run(NAME, sql, "to add a row")

    def load(self) -> Any:
        file = io.BytesIO()
        pq.write_table(pa.table({"id": [1]}), file)
        config = bigquery.LoadJobConfig(
            source_format="PARQUET", write_disposition="WRITE_APPEND", labels={}
        )
        size = len(file.getvalue())
        return self.jobs().load(NAME, file, size, f"tideline.{self.dataset.name}.t", config)

    @property
    def rows(self) -> int:
        name = self.dataset.name
        (row,) = self.dataset.direct.query(f"SELECT COUNT(*) FROM `{name}`.t").result()  # noqa: S608
        return int(row[0])

    @property
    def made(self) -> list[str | None]:
        """The ids of the requests that were to make a job."""
        return [one.job_id for one in self.dataset.front.calls if one.method == "POST"]


@pytest.fixture
def work(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Google's client pauses as briefly as it can between its own tries."""
    monkeypatch.setattr(DEFAULT_RETRY, "_initial", 0.001)
    monkeypatch.setattr(DEFAULT_RETRY, "_maximum", 0.01)
    dataset.direct.query(f"CREATE TABLE `{dataset.name}`.t (id INT64)").result()
    dataset.front.calls.clear()
    return Work(dataset)


def begin(front: BigQueryFront, sql: str) -> bigquery.QueryJob:
    """Make the work's job by another client."""
    once: Any = {"job_retry": None}
    return front.client().query(sql, job_id=f"{NAME}-0", **once)


def failure(work: Work) -> TidelineError:
    with pytest.raises(JobFailed) as failed:
        work.run()
    return failed.value.error


@pytest.mark.parametrize("fault", PASSES)
@pytest.mark.parametrize("kind", ["run", "load"])
def test_a_job_runs_once_whatever_becomes_of_its_request(
    work: Work, kind: str, fault: BigQueryFault
) -> None:
    work.dataset.front.fail_next(fault)
    getattr(work, kind)()
    assert (work.rows, work.dataset.front.unmet) == (1, [])
    getattr(work, kind)()
    assert work.rows == 1, "its id was used"
    assert {*work.made} <= {f"{NAME}-0", None}


@pytest.mark.parametrize("kind", ["run", "load"])
@pytest.mark.parametrize("fault", [BigQueryFault.JOB_FAILS, BigQueryFault.JOB_LIMITED])
def test_a_job_that_failed_for_now_is_tried_again_later_and_later(
    work: Work, kind: str, fault: BigQueryFault
) -> None:
    work.dataset.front.fail_next(fault, fault, fault)
    getattr(work, kind)()
    assert work.rows == 1
    first, second, third = work.pauses
    assert 0 < first < second < third


def test_a_job_that_fails_each_time_is_unavailable_and_runs_another_time(work: Work) -> None:
    """Ids of jobs that failed are used for good: that does not end the work for good."""
    work.dataset.front.fail_next(*[BigQueryFault.JOB_FAILS] * 4)
    error = failure(work)
    assert isinstance(error, Unavailable)
    assert "backendError" in error.message and "to add a row" in error.message
    assert (work.rows, len(work.pauses)) == (0, 3)
    work.run()
    work.run()
    assert work.rows == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(BigQueryFault.JOB_REFUSED, Unavailable), (BigQueryFault.JOB_INVALID, InvariantBroken)],
)
def test_a_job_that_would_fail_again_is_named_and_not_repeated(
    work: Work, fault: BigQueryFault, kind: type[TidelineError]
) -> None:
    """Until another run does, when the reason may be gone; no message of BigQuery's is shown."""
    work.dataset.front.fail_next(fault)
    error = failure(work)
    assert type(error) is kind
    assert f"{NAME}-0" in error.message and "secret" not in str(error)
    assert (work.rows, work.pauses, work.made) == (0, [], [f"{NAME}-0"])
    work.run()
    assert work.rows == 1


def test_a_request_that_is_refused_for_a_quota_is_not_repeated(work: Work) -> None:
    work.dataset.front.fail_next(BigQueryFault.QUOTA)
    with pytest.raises(Unavailable, match="quotaExceeded") as refused:
        work.run()
    assert "quota" in (refused.value.hint or "")
    assert (work.rows, work.made) == (0, [f"{NAME}-0"])


def test_a_service_that_refuses_for_long_is_unavailable(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEFAULT_RETRY, "_timeout", 0.2)
    work.dataset.front.fail_next(*[BigQueryFault.RATE_LIMIT] * 1_000)
    with pytest.raises(Unavailable, match="to add a row"):
        work.run()
    assert work.rows == 0


def test_data_that_no_job_can_write_is_not_repeated(work: Work) -> None:
    with pytest.raises(JobFailed) as failed:
        work.run("SELECT ERROR('value of a row');")
    assert isinstance(failed.value.error, InvariantBroken)
    assert "value of" not in str(failed.value.error)
    assert work.made == [f"{NAME}-0"]


@pytest.mark.parametrize("kind", ["run", "load"])
def test_a_job_that_ends_late_is_waited_for(work: Work, kind: str) -> None:
    work.dataset.front.keep_running(2)
    job = getattr(work, kind)()
    assert (job.state, work.rows) == ("DONE", 1)


@pytest.mark.parametrize("kind", ["run", "load"])
def test_a_job_whose_end_cannot_be_read_for_a_while_is_waited_for(work: Work, kind: str) -> None:
    front = work.dataset.front
    front.keep_running(1)
    front.fail_reads(
        BigQueryFault.REQUEST_LOST, BigQueryFault.UNAVAILABLE, BigQueryFault.RATE_LIMIT
    )
    job = getattr(work, kind)()
    assert (job.state, work.rows, front.unmet) == ("DONE", 1, [])


def test_a_killed_clients_job_is_waited_for_by_the_next(work: Work) -> None:
    """The job goes on without the client that made it."""
    front = work.dataset.front
    front.keep_running(2)
    sql = f"INSERT `{work.dataset.name}`.t (id) VALUES (1)"  # noqa: S608
    begin(front, sql)
    assert work.rows == 0
    work.run()
    assert (work.rows, work.made) == (1, [f"{NAME}-0", f"{NAME}-0"])


def test_a_job_that_someone_stopped_runs_another_time(work: Work) -> None:
    front = work.dataset.front
    front.keep_running(100)
    begin(front, "SELECT 1").cancel()
    work.run()
    assert (work.rows, work.made[-1]) == (1, f"{NAME}-1")


def test_two_clients_at_once_run_one_job(work: Work) -> None:
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(work.run) for _ in range(2)]
        assert {one.result().job_id for one in jobs} == {f"{NAME}-0"}
    assert work.rows == 1


def test_a_race_that_an_earlier_run_lost_is_not_this_runs(work: Work) -> None:
    """Its guard says whether it is overtaken, too."""
    with pytest.raises(TargetOvertaken):
        work.run("ASSERT FALSE AS 'TIDELINE_TARGET_OVERTAKEN';")
    work.run()
    assert work.rows == 1
