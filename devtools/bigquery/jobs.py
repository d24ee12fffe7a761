"""BigQuery's jobs as its API has them, over an emulator that runs them at once.

An id belongs to one job for good. A job may stay RUNNING for some polls, with nothing of it
applied; jobs run one at a time, unlike BigQuery's.
"""

from __future__ import annotations

import copy
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devtools.bigquery.answers import HttpError, JobError, unsupported
from devtools.bigquery.emulator import Emulator
from devtools.bigquery.loads import Load
from devtools.bigquery.merge_counts import KINDS
from devtools.bigquery.statements import Script

_DML = {
    "INSERT": "insertedRowCount",
    "UPDATE": "updatedRowCount",
    "DELETE": "deletedRowCount",
}
_BILLED = {"DeleteStatement", "MergeStatement", "UpdateStatement"}
"""The statements that read the table that they write; what others read is not counted here."""
BILLED_MIN = 10 * 1024 * 1024


@dataclass(slots=True)
class Job:
    """One job: how it is run, and what is known of it."""

    project: str
    id: str
    configuration: dict[str, Any]
    run: Callable[[], dict[str, Any]]
    polls: int
    state: str = "RUNNING"
    error: dict[str, str] | None = None
    statistics: dict[str, Any] = field(default_factory=dict)

    @property
    def resource(self) -> dict[str, Any]:
        """Return the job as the API shows it."""
        status: dict[str, Any] = {"state": self.state}
        if self.error is not None:
            status |= {"errorResult": self.error, "errors": [self.error]}
        return {
            "kind": "bigquery#job",
            "id": f"{self.project}:US.{self.id}",
            "jobReference": {"projectId": self.project, "jobId": self.id, "location": "US"},
            "configuration": self.configuration,
            "status": status,
            "statistics": self.statistics,
        }

    def finish(self) -> None:
        """Run it, unless it has ended."""
        if self.state == "DONE":
            return
        try:
            self.statistics |= self.run()
        except JobError as error:
            self.error = error.result
        self.statistics["endTime"] = _now()
        self.state = "DONE"

    def poll(self) -> None:
        """Count a poll; run it when there were enough of them."""
        if self.polls == 0:
            self.finish()
        self.polls = max(0, self.polls - 1)


@dataclass(frozen=True, slots=True)
class StandInState:
    """The knowledge of `StandInJobs` at a moment."""

    jobs: Mapping[tuple[str, str], Job]
    children: Mapping[tuple[str, str], list[dict[str, str]]]
    modified: Mapping[tuple[str, str], int]
    altered: set[tuple[str, str]]


class StandInJobs:
    """The jobs of an emulator; ``folder`` is for files that it reads."""

    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self._emulator, self.folder = emulator, folder
        self._jobs: dict[tuple[str, str], Job] = {}
        self.altered: set[tuple[str, str]] = set()
        """The tables whose columns a statement has changed: its emulator describes the former."""
        self._children: dict[tuple[str, str], list[dict[str, str]]] = {}
        self.modified: dict[tuple[str, str], int] = {}
        """When a table was last changed by a job, in milliseconds, by dataset and name: its
        emulator does not know."""
        self.primary_keys: dict[tuple[str, str], tuple[str, ...]] = {}
        """The declared keys of tables that have any, by dataset and name."""
        self.numbers: dict[tuple[str, str], dict[Any, tuple[int, ...]]] = {}
        """The highest number of each key, deleted ones too, of tables that a stream has written."""
        self.buckets: dict[str, Path] = {}
        """Folders that stand for buckets of Google's, by name."""
        self._put_back: dict[tuple[str, str], int] = {}
        self._turn = threading.RLock()

    def insert(
        self,
        project: str,
        body: Mapping[str, Any],
        content: bytes | None = None,
        *,
        polls: int = 0,
        failure: JobError | None = None,
    ) -> dict[str, Any]:
        """Make the job that ``body`` describes, and run it unless ``polls`` come first; return it.
        ``content`` is the file of a load job; by ``failure`` it ends without having run.

        Raises HttpError (409) when there is a job of this id, however it ended.
        """
        with self._turn:
            name = body.get("jobReference", {}).get("jobId") or uuid.uuid4().hex
            if (project, name) in self._jobs:
                raise HttpError(409, "duplicate", f"Already Exists: Job {project}:US.{name}")
            configuration = json.loads(json.dumps(body["configuration"]))
            run = self._runner(project, name, configuration, content)
            if failure is not None:
                run = _failing(failure)
            times = {"creationTime": _now(), "startTime": _now()}
            job = Job(project, name, configuration, run, polls, statistics=times)
            if polls == 0:
                job.finish()
            self._jobs[project, name] = job
            return job.resource

    def poll(self, project: str, name: str) -> Job:
        """Return a job as it is after this poll; HttpError (404) when there is none of this id."""
        with self._turn:
            job = self._find(project, name)
            if job.state != "DONE":
                job.poll()
            return job

    def finish(self, name: str) -> None:
        """Run a job to its end that no one polls."""
        with self._turn:
            for (_, known), job in self._jobs.items():
                if known == name:
                    job.finish()

    def modified_at(self, dataset: str, table: str, emulated: int) -> int:
        """Return when a table was last changed, in milliseconds: ``emulated`` is what the emulator
        says, which counts unless it is when `go_back` put the table there."""
        name = (dataset, table)
        if emulated <= self._put_back.get(name, 0):
            emulated = 0
        return max(emulated, self.modified.get(name, 0))

    def known(self) -> StandInState:
        """Return a copy of what is known of jobs and tables."""
        with self._turn:
            jobs = {name: copy.copy(job) for name, job in self._jobs.items()}
            return StandInState(jobs, dict(self._children), dict(self.modified), set(self.altered))

    def go_back(self, known: StandInState, modified: Mapping[tuple[str, str], int]) -> None:
        """Know what was known then, and no more; ``modified`` is when tables were last changed
        that the emulator was just given again."""
        with self._turn:
            self._jobs = {name: copy.copy(job) for name, job in known.jobs.items()}
            self._children = dict(known.children)
            self.modified, self.altered = {**known.modified, **modified}, set(known.altered)
            self._put_back |= dict.fromkeys(modified, int(_now()))

    def children(self, project: str, name: str) -> list[dict[str, Any]]:
        """Return the jobs of the MERGEs of a script; of its other statements nothing is known."""
        found = []
        for at, counts in enumerate(self._children.get((project, name), [])):
            query = {"query": "", "useLegacySql": False}
            job = Job(project, f"script_job_{name}_{at}", {"jobType": "QUERY", "query": query},
                      dict, 0, "DONE")  # fmt: skip
            kept = {"statementType": "MERGE", "dmlStats": counts}
            job.statistics = {"query": kept, "parentJobId": name, "endTime": _now()}
            found.append(job.resource)
        return found

    def _counted(self, project: str, sql: str) -> dict[str, str]:
        """Return what a MERGE is to do, by the query that counts it."""
        config = {"query": sql, "useLegacySql": False}
        done = self._emulator.run(project, {"query": config})
        name = done["jobReference"]["jobId"]
        path = f"/bigquery/v2/projects/{project}/queries/{name}"
        _, text = self._emulator.send("GET", path)
        (row,) = json.loads(text)["rows"]
        return dict(zip(KINDS.values(), (one["v"] for one in row["f"]), strict=True))

    def cancel(self, project: str, name: str) -> dict[str, Any]:
        """Cancel a job that has not ended; return it."""
        with self._turn:
            job = self._find(project, name)
            job.run = _failing(JobError("stopped", "Job execution was cancelled: User requested"))
            job.finish()
            return job.resource

    def _find(self, project: str, name: str) -> Job:
        if (project, name) not in self._jobs:
            raise HttpError(404, "notFound", f"Not found: Job {project}:US.{name}")
        return self._jobs[project, name]

    def _runner(
        self, project: str, name: str, configuration: dict[str, Any], content: bytes | None
    ) -> Callable[[], dict[str, Any]]:
        if configuration.get("dryRun"):
            raise unsupported("dry runs")
        if content is not None or configuration.get("load", {}).get("sourceUris"):
            load = Load(project, configuration, self.folder)
            configuration["jobType"] = "LOAD"
            return lambda: {
                "load": load.run(
                    self._emulator,
                    load.in_buckets(self.buckets) if content is None else [content],
                )
            }
        if "query" not in configuration:
            raise unsupported("jobs other than queries and loads")
        if configuration["query"].get("useLegacySql", True):
            raise unsupported("legacy SQL, which a query is in that does not say otherwise")
        configuration["jobType"] = "QUERY"
        return lambda: self._query(project, name, configuration)

    def _query(self, project: str, name: str, configuration: dict[str, Any]) -> dict[str, Any]:
        query = configuration["query"]
        script = Script(query["query"], name)
        if (guard := script.guard()) is not None:
            self._emulator.run(project, {"query": {**query, "query": guard}})
        for written, kind in script.written():
            if kind in _BILLED and self.numbers.get(written):
                raise JobError("invalidQuery", f"{kind} of a table with active CDC: {written[1]}")
        children = [self._counted(project, one) for one in script.countings()]
        inner = {"query": {**query, "query": script.emulated()}}
        answer = self._emulator.run(project, inner, name)
        if "destinationTable" in answer["configuration"]["query"]:
            query["destinationTable"] = answer["configuration"]["query"]["destinationTable"]
        self._children[project, name] = children
        for written, kind in script.written():
            self.modified[written] = int(_now())
            if kind == "AlterTableStatement":
                self.altered.add(written)
        for made, key in script.primary_keys():
            self.primary_keys[made] = key
            self.numbers.pop(made, None)
        statistics: dict[str, Any] = answer["statistics"]["query"]
        # Its emulator bills nothing; BigQuery at least this for each table.
        tables = {written for written, kind in script.written() if kind in _BILLED}
        statistics["totalBytesBilled"] = str(BILLED_MIN * len(tables))
        return {"query": _with_counts(statistics)}


def _with_counts(statistics: dict[str, Any]) -> dict[str, Any]:
    """Return a statement's statistics with what is known of the rows that it changed: all of one
    that only inserts, updates or deletes, their sum of a MERGE, nothing of a script."""
    kind = statistics.get("statementType")
    if kind in _DML:
        counts = dict.fromkeys(_DML.values(), "0")
        statistics["dmlStats"] = counts | {_DML[kind]: statistics["numDmlAffectedRows"]}
    elif kind != "MERGE":
        statistics.pop("numDmlAffectedRows", None)
    return statistics


def _failing(error: JobError) -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        raise error

    return run


def _now() -> str:
    return str(time.time_ns() // 1_000_000)
