"""A small client of Airflow's REST API: trigger, wait, look.

Errors: Unavailable when nothing answers in time or the server fails, Misconfigured for what it
refuses (with its words and the HTTP status).
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from tideline.contract.errors import Misconfigured, Unavailable

_REQUEST_TIMEOUT_S = 60.0
_POLL_S = 0.25
ENDED = ("success", "failed")


class AirflowApi:
    """Airflow's REST API at ``url``, as ``user``; logs in when first used, and again on 401."""

    def __init__(self, url: str, *, user: str, password: str) -> None:
        self.url = url
        self._user = user
        self._password = password
        self._token: str | None = None

    def health(self) -> dict[str, str]:
        """Return ``{component: "healthy" or other}``, without logging in."""
        answer = self._send("GET", "/api/v2/monitor/health", None, token=None)
        return {name: str(part["status"]) for name, part in answer.items() if part}

    def dags(self) -> dict[str, bool]:
        """Return the known DAGs, and whether each is paused."""
        found = self.get("dags", limit=100)["dags"]
        return {dag["dag_id"]: bool(dag["is_paused"]) for dag in found}

    def import_errors(self) -> dict[str, str]:
        """Return file → the stack trace of its failed import."""
        found = self.get("importErrors")["import_errors"]
        return {error["filename"]: error["stack_trace"] for error in found}

    def trigger(
        self,
        dag_id: str,
        conf: Mapping[str, Any] | None = None,
        *,
        logical_date: str | None = None,
    ) -> str:
        """Start a run with ``conf`` as its params, of the data interval of ``logical_date`` (ISO
        8601); returns the run's id."""
        body = {"logical_date": logical_date, "conf": dict(conf or {})}
        return str(self.call("POST", f"dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def state(self, dag_id: str, run_id: str) -> str:
        return str(self.get(f"dags/{dag_id}/dagRuns/{quote(run_id)}")["state"])

    def wait(self, dag_id: str, run_id: str, *, timeout_s: float) -> str:
        """Return ``success`` or ``failed`` once the run ended; Unavailable after ``timeout_s``.

        An API server that is too busy to answer is asked again until then.
        """
        end = time.monotonic() + timeout_s
        state = "unknown"
        while time.monotonic() < end:
            try:
                state = self.state(dag_id, run_id)
            except Unavailable as error:
                state = f"unknown ({error})"
            if state in ENDED:
                return state
            time.sleep(_POLL_S)
        raise Unavailable(f"{dag_id} {run_id} is {state} after {timeout_s:g} s")

    def runs(self, dag_id: str, *, run_type: str | None = None) -> dict[str, str]:
        """Return run id → state, the newest first."""
        wanted = {"order_by": "-run_after", "limit": 100}
        if run_type is not None:
            wanted["run_type"] = run_type
        found = self.get(f"dags/{dag_id}/dagRuns", **wanted)["dag_runs"]
        return {run["dag_run_id"]: run["state"] for run in found}

    def tasks(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return task id → state of one run."""
        path = f"dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances"
        return {task["task_id"]: task["state"] for task in self.get(path)["task_instances"]}

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """Return a task's result; Misconfigured (404) when it returned nothing."""
        run = f"dags/{dag_id}/dagRuns/{quote(run_id)}"
        entry = f"{run}/taskInstances/{task_id}/xcomEntries/return_value"
        return self.get(entry, deserialize="true")["value"]

    def log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return the log of a task's newest try, as text."""
        task = f"dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}"
        attempt = self.get(task)["try_number"]
        lines = self.get(f"{task}/logs/{attempt}", full_content="true")["content"]
        return "\n".join(
            line if isinstance(line, str) else " ".join(str(value) for value in line.values())
            for line in lines
        )

    def clear(self, dag_id: str, run_id: str, *task_ids: str) -> None:
        """Clear tasks of a run (all without names), so that they run again."""
        body: dict[str, Any] = {"dag_run_id": run_id, "dry_run": False, "only_failed": False}
        if task_ids:
            body |= {"task_ids": list(task_ids), "include_downstream": True}
        self.call("POST", f"dags/{dag_id}/clearTaskInstances", body)

    def backfill(
        self, dag_id: str, begin: str, end: str, conf: Mapping[str, Any], *, again: bool = False
    ) -> int:
        """Ask for the runs of all intervals between two times; ``again``: done ones too."""
        behaviour = "completed" if again else "none"
        body = {"dag_id": dag_id, "from_date": begin, "to_date": end, "dag_run_conf": dict(conf)}
        body["reprocess_behavior"] = behaviour
        return int(self.call("POST", "backfills", body)["id"])

    def backfill_ended(self, backfill_id: int) -> bool:
        """Return whether the scheduler has closed it; until then a DAG can have no other one."""
        return self.get(f"backfills/{backfill_id}")["completed_at"] is not None

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path + (f"?{urlencode(query)}" if query else ""))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make one call under ``/api/v2/``, logged in; returns the decoded answer."""
        for attempt in (1, 2):
            if self._token is None:
                self._token = self._log_in()
            try:
                return self._send(method, f"/api/v2/{path}", body, token=self._token)
            except _TokenRefused:
                self._token = None
                if attempt == 2:
                    raise
        raise AssertionError  # pragma: no cover

    def _log_in(self) -> str:
        login = {"username": self._user, "password": self._password}
        return str(self._send("POST", "/auth/token", login, token=None)["access_token"])

    def _send(self, method: str, path: str, body: Any, *, token: str | None) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, method=method, data=data, headers=headers)
        what = f"airflow: {method} {path.partition('?')[0]}"
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as error:
            words = f"{what} answered {error.code}: {error.read()[:500].decode(errors='replace')}"
            if error.code == 401:
                raise _TokenRefused(words) from None
            if error.code < 500:
                raise Misconfigured(words) from None
            raise Unavailable(words) from None
        except OSError as error:
            raise Unavailable(f"{what} got no answer: {error}") from None
        return json.loads(raw) if raw else None


class _TokenRefused(Misconfigured):
    """The login has expired, or was wrong."""
