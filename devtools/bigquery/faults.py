"""Ways for requests to go wrong, at the stand-in for BigQuery."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from devtools.bigquery.answers import HttpError, JobError


class BigQueryFault(Enum):
    """A way for one request to go wrong."""

    REQUEST_LOST = "the connection ends before the job was made"
    ANSWER_LOST = "the connection ends after the job ran"
    RATE_LIMIT = (403, "rateLimitExceeded")
    QUOTA = (403, "quotaExceeded")
    UNAVAILABLE = (503, "backendError")
    INTERNAL = (500, "internalError")
    INTERNAL_AFTER = "an internal error is answered after the job ran"
    JOB_FAILS = "the job is made, and ends with backendError, having changed nothing"
    JOB_LIMITED = "… and ends with rateLimitExceeded"
    JOB_REFUSED = "… and ends with quotaExceeded"
    JOB_INVALID = "… and ends with invalidQuery, with a row's value in its message"


_FAILURES = {
    BigQueryFault.JOB_FAILS: ("backendError", "Backend error, as a test asks for it"),
    BigQueryFault.JOB_LIMITED: ("rateLimitExceeded", "Exceeded rate limits, as a test asks for it"),
    BigQueryFault.JOB_REFUSED: ("quotaExceeded", "Quota exceeded, as a test asks for it"),
    BigQueryFault.JOB_INVALID: ("invalidQuery", "Bad int64 value: secret-of-a-row"),
}


def failure_of(fault: BigQueryFault | None) -> JobError | None:
    """Return what a job ends with that ``fault`` is for; None: it does not end it."""
    return JobError(*_FAILURES[fault]) if fault in _FAILURES else None


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its method, its path without a query, and the job that it is about."""

    method: str
    path: str
    job_id: str | None


def refuse(fault: BigQueryFault | None) -> None:
    """Raise what a request meets that ``fault`` is for, if nothing comes of it."""
    if fault is BigQueryFault.REQUEST_LOST:
        raise ConnectionError
    if fault is not None and isinstance(fault.value, tuple):
        code, reason = fault.value
        raise HttpError(code, reason, f"{reason}, as a test asks for it")
