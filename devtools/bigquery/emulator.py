"""A client of the emulator's REST API, for the stand-in in front of it."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

from devtools.bigquery.answers import HttpError, JobError, unsupported

_API = "/bigquery/v2/projects"
_PREFIXES = ("Query execution failed: ", "Invalid Input Error: ")


class Emulator:
    """The emulator at ``endpoint``, one request after another: it has one connection to its
    database, and of two queries at once one may be answered with the rows of the other."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._one_request = threading.Lock()

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return the status and the body of the answer to a request."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(
            self._endpoint + path, data=body, headers=headers, method=method
        )
        try:
            with self._one_request, urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def run(self, project: str, configuration: Mapping[str, Any], job_id: str = "") -> Any:
        """Run a job to its end; return it. Raises JobError with its failure, HttpError when the
        emulator cannot run it."""
        reference = {"projectId": project, "jobId": job_id or f"inner-{uuid.uuid4().hex}"}
        body = {"jobReference": reference, "configuration": configuration}
        status, text = self.send("POST", f"{_API}/{project}/jobs", json.dumps(body).encode())
        answer = json.loads(text)
        if status != 200:
            raise _cannot(status, text)
        error = answer["status"].get("errorResult")
        if error is not None:
            message = error["message"]
            for prefix in _PREFIXES:
                message = message.removeprefix(prefix)
            raise JobError(error["reason"], message)
        return answer

    def query(self, project: str, sql: str, job_id: str = "") -> Any:
        """Run a query or script to its end; see `run`."""
        return self.run(project, {"query": {"query": sql, "useLegacySql": False}}, job_id)

    def table(self, reference: Mapping[str, str]) -> Any:
        """Return the description of a table; None when it is missing."""
        status, text = self.send("GET", _path(reference))
        return json.loads(text) if status == 200 else None

    def drop(self, reference: Mapping[str, str]) -> None:
        """Drop a table."""
        self.send("DELETE", _path(reference))

    def create(self, reference: Mapping[str, str], fields: list[dict[str, Any]]) -> None:
        """Create a table; HttpError when the emulator cannot."""
        body = {"tableReference": dict(reference), "schema": {"fields": fields}}
        path = _path(reference).rpartition("/")[0]
        status, text = self.send("POST", path, json.dumps(body).encode())
        if status != 200:
            raise _cannot(status, text)


def _cannot(status: int, text: bytes) -> HttpError:
    return unsupported(f"this, for its emulator answers {status}: {text.decode()[:300]}")


def _path(reference: Mapping[str, str]) -> str:
    return (
        f"{_API}/{reference['projectId']}/datasets/{reference['datasetId']}"
        f"/tables/{reference['tableId']}"
    )
