"""A stand-in for BigQuery: its REST API before an emulator, strict where that is lenient, and with
the faults that a client has to live with.

Jobs, uploads and results are its own (`StandInJobs`); tables and datasets are the emulator's. A
request for what it does not model is answered by 501, which clients do not repeat. Whether BigQuery
refuses a second job of an id when its upload begins or when it ends is not known here: it is when
it ends.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from devtools.bigquery.answers import HttpError, failed, unsupported
from devtools.bigquery.emulator import Emulator
from devtools.bigquery.faults import BigQueryFault, Call, failure_of, refuse
from devtools.bigquery.jobs import Job, StandInJobs
from devtools.bigquery.permissions import check_permission, refused_job
from devtools.bigquery.uploads import Upload, Uploads, parts
from devtools.services.http_service import HttpService, QuietHandler

_API = "/bigquery/v2/projects/"


class BigQueryFront(HttpService):
    """The stand-in, before the emulator at ``endpoint``; ``folder`` is for files that both read."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        super().__init__(_Handler)
        self.emulator = Emulator(endpoint)
        self.jobs = StandInJobs(self.emulator, folder)
        self.uploads = Uploads()
        self.calls: list[Call] = []
        self.options: dict[tuple[str, str], dict[str, str]] = {}
        """What tables' descriptions have besides, by dataset and name."""
        self.denied: set[str] = set()
        """The permissions that its client lacks."""
        self._faults: deque[BigQueryFault | None] = deque()
        self._read_faults: deque[BigQueryFault] = deque()
        self._polls: deque[int] = deque()
        self.turn = threading.RLock()
        """Who has it knows that nothing is written."""
        self._watch: Callable[[str, Call], None] = _unwatched

    def client(self, project: str = "tideline", endpoint: str | None = None) -> bigquery.Client:
        """Return a client of Google's that reaches it, or its emulator's ``endpoint``."""
        options = ClientOptions(api_endpoint=endpoint or self.endpoint)
        return bigquery.Client(
            project=project,
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            client_options=options,
        )

    def fail_next(self, *faults: BigQueryFault | None) -> None:
        """Have the next requests that make jobs meet ``faults``, one each, in this order; None:
        this one meets none."""
        self._faults.extend(faults)

    def fail_reads(self, *faults: BigQueryFault) -> None:
        """Have the next requests for a job or its rows meet ``faults``, none of which is about a
        job's end."""
        self._read_faults.extend(faults)

    def keep_running(self, polls: int) -> None:
        """Have the next job stay RUNNING, not applied, for ``polls`` polls; `StandInJobs.finish`
        ends it without them."""
        self._polls.append(polls)

    @contextmanager
    def watched(self, watch: Callable[[str, Call], None]) -> Iterator[None]:
        """Call ``watch`` with ``"before"`` and ``"after"`` around each request that makes a job,
        or writes a table or dataset; the client has its answer once the second call returns."""
        self._watch = watch
        try:
            yield
        finally:
            self._watch = _unwatched

    @property
    def unmet(self) -> list[BigQueryFault]:
        """The faults that no request has met yet."""
        return [one for one in (*self._faults, *self._read_faults) if one is not None]

    def insert(self, project: str, upload: Upload) -> dict[str, Any]:
        """Make a job, or do what the next fault says; ConnectionError ends the connection."""
        call = Call("POST", f"{_API}{project}/jobs", upload.job_id)
        watch = self._watch
        watch("before", call)
        made = self._insert(project, upload)
        watch("after", call)
        return made

    def _insert(self, project: str, upload: Upload) -> dict[str, Any]:
        with self.turn:
            fault = self._faults.popleft() if self._faults else None
            refuse(fault)
            failure = failure_of(fault) or refused_job(self.denied)
            polls = self._polls.popleft() if self._polls else 0
            content = upload.content
            made = self.jobs.insert(project, upload.job, content, polls=polls, failure=failure)
            upload.answer = made
            if fault is BigQueryFault.ANSWER_LOST:
                raise ConnectionError
            if fault is BigQueryFault.INTERNAL_AFTER:
                raise HttpError(500, "internalError", "internalError, as a test asks for it")
            return made

    def poll(self, project: str, name: str) -> Job:
        """Return a job, or do what the next fault of reads says."""
        with self.turn:
            refuse(self._read_faults.popleft() if self._read_faults else None)
        return self.jobs.poll(project, name)

    def results(self, project: str, name: str, query: str) -> tuple[int, bytes]:
        """Answer who asks for the rows of a query job."""
        job = self.poll(project, name)
        if job.state != "DONE":
            body = {"jobComplete": False, "jobReference": job.resource["jobReference"]}
            return 200, json.dumps({"kind": "bigquery#getQueryResultsResponse", **body}).encode()
        if job.error is not None:
            raise failed(job.error)
        return self.emulator.send("GET", f"{_API}{project}/queries/{name}?{query}")

    def passed_on(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Answer what the emulator does; a table with the time of its last change."""
        if method == "GET":
            return self._described(path, *self.emulator.send(method, path, body))
        call = Call(method, urlsplit(path).path, None)
        watch = self._watch
        watch("before", call)
        with self.turn:
            answer = self._described(path, *self.emulator.send(method, path, body))
        watch("after", call)
        return answer

    def _described(self, path: str, status: int, text: bytes) -> tuple[int, bytes]:
        match unquote(urlsplit(path).path).partition(_API)[2].split("/"):
            case [project, "datasets", dataset, "tables", table] if status == 200 and text:
                answer = json.loads(text)
                known = self.jobs.modified_at(dataset, table, int(answer["lastModifiedTime"]))
                answer["schema"] = {"fields": self._fields(project, dataset, table, answer)}
                answer |= self.options.get((dataset, table), {})
                return _json({**answer, "lastModifiedTime": str(known)})
            case [project, "datasets", dataset, "tables", table, "data"] if status == 200:
                if self.jobs.numbers.get((dataset, table)):
                    raise unsupported("lists of rows of a table with active CDC: query them")
                return self._rows(project, f"`{dataset}`.`{table}`", parse_qs(urlsplit(path).query))
        return status, text

    def _fields(self, project: str, dataset: str, table: str, known: Any) -> list[Any]:
        """Return a table's columns, where its emulator has them as they were before an ALTER."""
        fields: list[Any] = known.get("schema", {}).get("fields", [])
        if (dataset, table) not in self.jobs.altered:
            return fields
        sql = f"SELECT * FROM `{dataset}`.`{table}` LIMIT 0"  # noqa: S608  a name
        done = self.emulator.run(project, {"query": {"query": sql, "useLegacySql": False}})
        path = f"{_API}{project}/queries/{done['jobReference']['jobId']}"
        _, text = self.emulator.send("GET", path)
        by_name = {one["name"]: one for one in fields}
        now = json.loads(text)["schema"]["fields"]
        return [
            one | {"description": by_name.get(one["name"], {}).get("description", "")}
            for one in now
        ]

    def fields(self, project: str, dataset: str, table: str) -> list[Any] | None:
        """Return a table's columns as they are now; None without a table."""
        path = f"{_API}{project}/datasets/{dataset}/tables/{table}"
        status, text = self.emulator.send("GET", path)
        return None if status != 200 else self._fields(project, dataset, table, json.loads(text))

    def _rows(self, project: str, table: str, words: dict[str, list[str]]) -> tuple[int, bytes]:
        """Answer all rows of a table, by a query: of a table that was replaced its emulator lists
        the former columns."""
        if words.keys() - {"prettyPrint", "formatOptions.useInt64Timestamp", "location"}:
            raise unsupported(f"pages of rows: {sorted(words)}")
        config = {"query": f"SELECT * FROM {table}", "useLegacySql": False}  # noqa: S608  a name
        done = self.emulator.run(project, {"query": config})
        place = f"{_API}{project}/queries/{done['jobReference']['jobId']}"
        rows, query = [], "formatOptions.useInt64Timestamp=true"
        while True:
            _, text = self.emulator.send("GET", f"{place}?{query}")
            found = json.loads(text)
            rows += found.get("rows", [])
            if not found.get("pageToken"):
                return _json({"rows": rows, "totalRows": str(len(rows))})
            page = {"pageToken": found["pageToken"]}
            query = urlencode({"formatOptions.useInt64Timestamp": "true", **page})


class _Handler(QuietHandler):
    """One request after another."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        headers: dict[str, str] = {}
        try:
            status, text = self._answer(unquote(url.path), url.query, body, headers)
        except HttpError as error:
            status, text = error.code, json.dumps(error.body).encode()
        except ConnectionError:
            self.close_connection = True
            return
        except Exception as error:  # noqa: BLE001  a client would repeat what it has no answer to
            status, text = 501, json.dumps(unsupported(f"this: {error!r}").body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    @property
    def _front(self) -> BigQueryFront:
        service = self.server.service
        assert isinstance(service, BigQueryFront)
        return service

    def _answer(
        self, path: str, query: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        front, (upload, _, rest) = self._front, path.partition(_API)
        check_permission(front.denied, self.command, rest.split("/"), parse_qs(query))
        match (self.command, *rest.split("/")):
            case ("POST" | "PUT", project, "jobs") if upload == "/upload":
                return self._upload(project, query, body, headers)
            case ("POST", project, "jobs"):
                made = Upload(json.loads(body), None)
                self._note(made.job_id)
                return _json(front.insert(project, made))
            case ("GET", project, "jobs") if parse_qs(query).get("parentJobId"):
                self._note(None)
                (parent,) = parse_qs(query)["parentJobId"]
                return _json({"jobs": front.jobs.children(project, parent)})
            case ("GET", project, "jobs", name):
                self._note(name)
                return _json(front.poll(project, name).resource)
            case ("POST", project, "jobs", name, "cancel"):
                self._note(name)
                return _json({"job": front.jobs.cancel(project, name)})
            case ("GET", project, "queries", name):
                self._note(name)
                return front.results(project, name, query)
            case (_, _, "datasets", *_) if not upload:
                self._note(None)
                return front.passed_on(self.command, self.path, body or None)
        self._note(None)
        raise unsupported(f"{self.command} {path}")

    def _upload(
        self, project: str, query: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        front, words = self._front, {key: one[0] for key, one in parse_qs(query).items()}
        if words.get("uploadType") == "multipart":
            made = Upload(*parts(self.headers["Content-Type"], body))
            self._note(made.job_id)
            return _json(front.insert(project, made))
        if self.command == "POST":
            name = front.uploads.begin(body)
            self._note(front.uploads.find(name).job_id)
            words = {"uploadType": "resumable", "upload_id": name}
            path = f"/upload{_API}{project}/jobs"
            pairs = "&".join(f"{key}={one}" for key, one in words.items())
            headers["Location"] = f"{front.endpoint}{path}?{pairs}"
            return 200, b""
        upload = front.uploads.find(words.get("upload_id", ""))
        self._note(upload.job_id)
        if upload.answer is None:
            if not upload.take(self.headers.get("Content-Range", ""), body):
                headers |= upload.range
                return 308, b""
            front.insert(project, upload)
        return _json(upload.answer)

    def _note(self, job_id: str | None) -> None:
        self._front.calls.append(Call(self.command, urlsplit(self.path).path, job_id))


def _unwatched(when: str, call: Call) -> None:
    """Nothing watches."""


def _json(answer: Any) -> tuple[int, bytes]:
    return 200, json.dumps(answer).encode()
