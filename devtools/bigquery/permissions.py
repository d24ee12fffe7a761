"""The permissions that requests to BigQuery's API take, and what a client that lacks one gets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from devtools.bigquery.answers import HttpError, JobError

UPDATE_DATA = "bigquery.tables.updateData"
"""The permission of what a job writes: the job is made, and fails."""
_OF_TABLES = {"POST": "create", "GET": "get", "PATCH": "update", "DELETE": "delete"}


def check_permission(
    denied: Collection[str], method: str, path: Sequence[str], query: Mapping[str, Any]
) -> None:
    """Raise HttpError (403) where the request to ``path``, below the projects, takes a permission
    that is ``denied``."""
    needed = permission_of(method, path, query)
    if needed in denied:
        text = f"Access Denied: Permission {needed} denied on resource (or it may not exist)."
        raise HttpError(403, "accessDenied", text)


def permission_of(method: str, path: Sequence[str], query: Mapping[str, Any]) -> str:
    """Return the permission that a request takes; "" for one that is not known here."""
    match (method, *path):
        case ("POST", _, "jobs"):
            return "bigquery.jobs.create"
        case ("GET", _, "jobs") if query.get("parentJobId"):
            return "bigquery.jobs.list"
        case (_, _, "datasets", _, "tables", _, "data"):
            return "bigquery.tables.getData"
        case (_, _, "datasets", _, "tables", *_):
            return f"bigquery.tables.{_OF_TABLES[method]}"
        case (_, _, "datasets", *_):
            return f"bigquery.datasets.{_OF_TABLES[method]}"
    return ""


def refused_job(denied: Collection[str]) -> JobError | None:
    """Return the failure of a job whose client may not write rows; None for one that may."""
    if UPDATE_DATA not in denied:
        return None
    return JobError("accessDenied", f"Access Denied: Permission {UPDATE_DATA} denied on table.")
