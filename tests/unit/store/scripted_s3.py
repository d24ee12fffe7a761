"""An S3 server of a few lines whose answers can be scripted: errors before and after the effect.

The real client talks to it, so that tests see what obstore makes of each answer. It is no evidence
for real stores: those are in the conformance suite.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from devtools.services.http_service import HttpService, QuietHandler
from tideline.settings import Store

BUCKET = "bucket"
ACCESS_KEY_ID = "AKIASCRIPTED"
SECRET = "scripted-secret"


@dataclass(frozen=True)
class Fault:
    """What one request gets; with ``effect`` it is carried out before its answer goes wrong."""

    status: int = 500
    code: str = "InternalError"
    effect: bool = False
    silent: bool = False
    """Never answer; the client's time-out ends the request."""
    broken: bool = False
    """Close the connection without an answer."""


class ScriptedS3(HttpService):
    """Serves on loopback while it is entered; ``faults`` are used up by requests in order."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.objects: dict[str, bytes] = {}
        self.faults: deque[Fault] = deque()
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        """Of each request, with names in small letters."""
        self.ignores_conditions = False
        self.denies_deletion = False
        self.lock = threading.Lock()
        self.released = threading.Event()

    def settings(self, *, retry_s: float = 60.0, timeout_s: float = 30.0) -> Store:
        return Store(
            url=f"s3://{BUCKET}/prefix",
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=ACCESS_KEY_ID,
            secret_access_key=SecretStr(SECRET),
            retry_s=retry_s,
            timeout_s=timeout_s,
        )

    def __exit__(self, *raised: object) -> None:
        self.released.set()
        super().__exit__(*raised)


class _Handler(QuietHandler):
    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        self._serve(lambda: self._write(data))

    def do_GET(self) -> None:
        self._serve(self._read)

    def do_HEAD(self) -> None:
        self._serve(self._read)

    def do_POST(self) -> None:
        """The client deletes by the request for many objects, even a single one."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self._serve(lambda: self._delete(re.findall(r"<Key>prefix/(.*?)</Key>", body)))

    def _key(self) -> str:
        return self.path.removeprefix(f"/{BUCKET}/prefix/")

    def _serve(self, act: Any) -> None:
        script: ScriptedS3 = self.server.service
        with script.lock:
            script.requests.append((self.command, self._key()))
            script.headers.append({name.lower(): value for name, value in self.headers.items()})
            fault = script.faults.popleft() if script.faults else None
            status, body = (200, b"") if fault and not fault.effect else act()
        if fault is None:
            self._answer(status, body)
        elif fault.silent:
            script.released.wait()
            self.close_connection = True
        elif fault.broken:
            self.close_connection = True
        else:
            quoted = f"<AWSAccessKeyId>{ACCESS_KEY_ID}</AWSAccessKeyId>"
            text = f"<Error><Code>{fault.code}</Code>{quoted}</Error>"
            self._answer(fault.status, text.encode())

    def _write(self, data: bytes) -> tuple[int, bytes]:
        script: ScriptedS3 = self.server.service
        conditional = self.headers.get("if-none-match") == "*" and not script.ignores_conditions
        if conditional and self._key() in script.objects:
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
        script.objects[self._key()] = data
        return 200, b""

    def _read(self) -> tuple[int, bytes]:
        found = self.server.service.objects.get(self._key())
        return (404, b"<Error><Code>NoSuchKey</Code></Error>") if found is None else (200, found)

    def _delete(self, keys: list[str]) -> tuple[int, bytes]:
        result = ""
        for key in keys:
            if self.server.service.denies_deletion:
                code = "<Code>AccessDenied</Code><Message>Access Denied</Message>"
                result += f"<Error><Key>prefix/{key}</Key>{code}</Error>"
            else:
                self.server.service.objects.pop(key, None)
                result += f"<Deleted><Key>prefix/{key}</Key></Deleted>"
        return 200, f"<DeleteResult>{result}</DeleteResult>".encode()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("etag", '"1"')
        self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
