"""Jobs of BigQuery's that run once, whatever becomes of the answer.

A job's id is made from what it does. So a request whose answer was lost is sent again without harm:
BigQuery answers that there is such a job, which is then waited for. Where a job failed, the next
one has another id; of two runs that try it again one makes it, and the other waits for it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from tideline.contract.errors import InvariantBroken, TidelineError
from tideline.contract.pauses import growing_pause_s
from tideline.warehouse.bigquery.client import BigQueryPlace, asking, reason_of, refused

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, LoadJob, QueryJob, QueryJobConfig
    from google.cloud.bigquery.table import RowIterator

OVERTAKEN = "TIDELINE_TARGET_OVERTAKEN"
"""In the text of what is raised where another run was faster, and of scripts that find it."""
_RACES = (OVERTAKEN, "concurrent update", "Could not serialize access")
_TRIES_MAX = 4
_IDS_MAX = 1_000
"""The jobs of one name, of all runs: those that failed have used their ids."""
_PAUSE_FIRST_S, _PAUSE_MAX_S = 1.0, 16.0
_PASSING = frozenset(
    {"backendError", "internalError", "jobBackendError", "jobInternalError", "rateLimitExceeded"}
)
"""Reasons for which a job may run at another time.

https://cloud.google.com/bigquery/docs/error-messages
"""
_INVALID = frozenset({"invalid", "invalidQuery"})
"""Reasons for which a statement or file of ours would fail each time, with these rows."""


class TargetOvertaken(PySparkException):
    """Another writer of the table was faster."""

    def __init__(self) -> None:
        super().__init__(f"[{OVERTAKEN}] another writer of the table was faster")


class JobFailed(Exception):
    """The job has ended without having changed anything; ``error`` says why."""

    def __init__(self, error: TidelineError) -> None:
        super().__init__(error.message)
        self.error = error


def job_name(*parts: object) -> str:
    """Return the beginning of the ids of a job that does what ``parts`` name."""
    text = "\0".join(map(str, parts))
    return f"tideline-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


class Jobs:
    """The jobs of one client; ``labels`` are theirs. ``bytes_billed`` is the sum of those that have
    ended, also where another run began one of them."""

    def __init__(
        self,
        client: Client,
        place: BigQueryPlace,
        labels: dict[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._place, self._labels = client, place, labels
        self._sleep = sleep
        self.bytes_billed = 0

    def run(self, name: str, sql: str, doing: str) -> QueryJob:
        """Run ``sql`` as the job ``name``, unless it has run; return the job, which has ended.

        Raises TargetOvertaken where it found another run's commit, or met one; JobFailed where it
        was refused or failed, for good; Unavailable where its end is not known.
        """
        config = self._config()
        once: Any = {"job_retry": None}

        def begin(job_id: str) -> QueryJob:
            return self._client.query(sql, job_config=config, job_id=job_id, **once)

        job: QueryJob = self._to_its_end(name, begin, doing)
        return job

    def query(self, sql: str) -> RowIterator:
        """Return the rows of ``sql``, a query, or a statement that may run twice: it has no id.
        Raises what Google's library raises."""
        job = self._client.query(sql, job_config=self._config())
        rows = job.result()
        self._count(job)
        return rows

    def _config(self) -> QueryJobConfig:
        # heavy: only pipelines with BigQuery tables need it
        from google.cloud.bigquery import QueryJobConfig

        limit = self._place.maximum_bytes_billed
        return QueryJobConfig(maximum_bytes_billed=limit, labels=self._labels)

    def _count(self, job: Any) -> None:
        self.bytes_billed += int(getattr(job, "total_bytes_billed", None) or 0)

    def load(self, name: str, file: Any, size: int, table: str, config: Any) -> LoadJob:
        """Load a file's rows as the job ``name``, unless that was done. Raises as `run` does."""

        def begin(job_id: str) -> LoadJob:
            return self._client.load_table_from_file(
                file, table, rewind=True, size=size, job_id=job_id, job_config=config
            )

        job: LoadJob = self._to_its_end(name, begin, f"to load rows for {table}")
        return job

    def load_from(self, name: str, uri: str, table: str, config: Any) -> LoadJob:
        """Load the rows of files in a bucket as the job ``name``, unless that was done. Raises as
        `run` does."""

        def begin(job_id: str) -> LoadJob:
            return self._client.load_table_from_uri(uri, table, job_id=job_id, job_config=config)

        job: LoadJob = self._to_its_end(name, begin, f"to load rows for {table}")
        return job

    def _to_its_end(self, name: str, begin: Callable[[str], Any], doing: str) -> Any:
        """Run the first job of the name that does not fail. Of jobs that others made, earlier or
        now, only an end without failure counts: the reason of a failure may be gone."""
        failures, reason, job_id = 0, "", ""
        for at in range(_IDS_MAX):
            job_id = f"{name}-{at}"
            with asking(doing):
                job, ours = self._begun(job_id, begin)
                _wait_for(job)
            self._count(job)
            if job.error_result is None:
                return job
            reason = str(job.error_result.get("reason"))
            if not ours:
                continue
            if any(text in job.error_result.get("message", "") for text in _RACES):
                raise TargetOvertaken
            if reason not in _PASSING or failures + 1 == _TRIES_MAX:
                break
            self._pause(failures)
            failures += 1
        raise JobFailed(_error(reason, doing, job_id))

    def _begun(self, job_id: str, begin: Callable[[str], Any]) -> tuple[Any, bool]:
        """Begin a job; return it, and whether it was this request that made it."""
        # heavy: as above
        from google.api_core.exceptions import Conflict, GoogleAPICallError

        for failures in range(_TRIES_MAX):
            try:
                return begin(job_id), True
            except Conflict:
                break
            except GoogleAPICallError as error:  # Google's library repeats queries, not uploads.
                if reason_of(error) not in _PASSING or failures + 1 == _TRIES_MAX:
                    raise
            self._pause(failures)
        return self._client.get_job(job_id), False

    def _pause(self, failures: int) -> None:
        self._sleep(growing_pause_s(failures, first_s=_PAUSE_FIRST_S, most_s=_PAUSE_MAX_S))


def _wait_for(job: Any) -> None:
    # heavy: as above
    from google.api_core.exceptions import GoogleAPICallError

    once: Any = {} if job.job_type == "load" else {"job_retry": None}
    try:
        job.result(**once)
    except GoogleAPICallError:
        if job.error_result is None:  # The question was refused, not the job.
            raise


def _error(reason: str, doing: str, job_id: str) -> TidelineError:
    if reason in _INVALID:
        return InvariantBroken(
            f"BigQuery failed {doing}: {reason} (job {job_id})",
            hint=f"`bq show --job {job_id}` has its message, which can hold a row's value",
        )
    return refused(reason, f"{doing} (job {job_id})")
