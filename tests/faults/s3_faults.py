"""An HTTP proxy before a real S3 server that spoils chosen requests and answers.

The real client talks through it to the real server, so that what is tested is what the client
library makes of a fault, and what the server did meanwhile. The host that the client signed is
passed on as it is, so signatures stay valid. What the server answers is passed on unless a
`Trouble` says otherwise.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from obstore.store import S3Store

from devtools.services.http_service import HttpService, QuietHandler
from devtools.services.s3 import REGION, S3Server

Kind = Literal["put", "create", "get", "head", "list", "delete"]
Answer = tuple[int, list[tuple[str, str]], bytes]

_PATIENCE_S = 30.0
_UNSENT = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
ALWAYS = 1_000_000


@dataclass(slots=True)
class Trouble:
    """What happens to the next ``times`` requests of ``kind`` whose key holds ``key``.

    A request is passed on to the server only when nothing here answers in its place, or with
    ``effect``: then the server carries it out before its answer goes wrong.
    """

    kind: Kind | None = None
    key: str = ""
    times: int = 1
    status: int | None = None
    code: str = "InternalError"
    message: str = "spoiled"
    effect: bool = False
    dropped: bool = False
    """The connection is closed without an answer."""
    silent: bool = False
    """There is no answer until the proxy ends."""
    delay_s: float = 0.0
    """Before the request is passed on."""
    body_bytes: int | None = None
    """Of the answer's body only so many come, whatever its Content-Length says."""
    short_length: bool = False
    """With ``body_bytes``: the Content-Length is made to agree with what comes."""
    unconditional: bool = False
    """A create-only PUT is carried out without its condition, whatever is there."""
    kept: bool = False
    """A copy of the request is kept for `S3Faults.deliver_late`."""
    met: int = field(default=0, init=False)

    def meets(self, kind: Kind, key: str) -> bool:
        wanted = self.kind is None or self.kind == kind
        return wanted and self.key in key and self.met < self.times


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the client sent it; ``key`` is decoded, and a list's is its prefix."""

    kind: Kind
    bucket: str
    key: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class S3Faults(HttpService):
    """Serves on loopback while it is entered. ``troubles`` may be changed at any time; the first
    that meets a request spoils it. ``seen`` counts requests by kind, spoiled ones too."""

    def __init__(self, server: S3Server) -> None:
        super().__init__(_Handler)
        self._upstream = server
        self.troubles: list[Trouble] = []
        self.seen: Counter[str] = Counter()
        self.kept: list[Request] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._watch: Callable[[str, Request], None] = _unwatched

    def add(self, trouble: Trouble) -> Trouble:
        with self._lock:
            self.troubles.append(trouble)
        return trouble

    def heal(self) -> None:
        """No more trouble from here on."""
        with self._lock:
            self.troubles.clear()

    @contextmanager
    def watched(self, watch: Callable[[str, Request], None]) -> Iterator[None]:
        """Call ``watch`` with ``"before"`` and ``"after"`` around what is passed on; the client has
        its answer once the second call returns."""
        self._watch = watch
        try:
            yield
        finally:
            self._watch = _unwatched

    def deliver_late(self) -> list[int]:
        """Send the kept requests to the server, in order; the status that each is answered with."""
        statuses = []
        while self.kept:
            statuses.append(self.send(self.kept.pop(0))[0])
        return statuses

    def meet(self, request: Request) -> Trouble | None:
        """The trouble that ``request`` gets."""
        with self._lock:
            self.seen[request.kind] += 1
            for trouble in self.troubles:
                if trouble.meets(request.kind, request.key):
                    trouble.met += 1
                    if trouble.kept:
                        self.kept.append(request)
                    return trouble
        return None

    def pass_on(self, request: Request, send: Callable[[Request], Answer]) -> Answer:
        """The server's answer by ``send``, watched."""
        watch = self._watch
        watch("before", request)
        answer = send(request)
        watch("after", request)
        return answer

    def send(self, request: Request) -> Answer:
        """The server's answer: status, headers, body. Raises OSError when there is none."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._upstream.port, timeout=_PATIENCE_S
        )
        try:
            connection.putrequest(
                request.method, request.target, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers:
                connection.putheader(name, value)
            connection.endheaders(request.body or None)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from None
        finally:
            connection.close()

    def overwrite(self, request: Request) -> Answer:
        """Put the request's object whatever is there; its condition is signed, so by our own."""
        server = self._upstream
        client = S3Store(
            request.bucket,
            endpoint=server.endpoint,
            region=REGION,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        put = client.put(request.key, request.body)
        return 200, [("etag", str(put["e_tag"]))], b""

    def __exit__(self, *raised: object) -> None:
        self.ended.set()
        super().__exit__(*raised)


def _unwatched(when: str, request: Request) -> None:
    """Nobody looks."""


class _Handler(QuietHandler):
    def do_PUT(self) -> None:
        self._serve()

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT

    def _serve(self) -> None:
        faults: S3Faults = self.server.service
        request = self._read()
        trouble = faults.meet(request) or Trouble()
        time.sleep(trouble.delay_s)
        spoiled = trouble.status is not None or trouble.dropped or trouble.silent
        answer = None
        if trouble.effect or not spoiled:
            with suppress(OSError):
                send = faults.overwrite if trouble.unconditional else faults.send
                answer = faults.pass_on(request, send)
        if trouble.silent:
            faults.ended.wait()
        if trouble.status is not None:
            code, message = trouble.code, trouble.message
            body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            self._answer(trouble.status, [], body, len(body))
        elif spoiled or answer is None:
            self.close_connection = True
        else:
            status, headers, body = answer
            length = len(body)
            if request.method == "HEAD":
                length = int(dict(headers).get("Content-Length", 0))
            elif trouble.body_bytes is not None and status == 200:
                body = body[: trouble.body_bytes]
                length = len(body) if trouble.short_length else length
            self._answer(status, headers, body, length)

    def _read(self) -> Request:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        headers = tuple(self.headers.items())
        kind = self._kind(parts.query)
        if kind == "list":
            key = parse_qs(parts.query).get("prefix", [""])[0]
        return Request(kind, bucket, key, self.command, self.path, headers, body)

    def _kind(self, query: str) -> Kind:
        if self.command == "HEAD":
            return "head"
        if self.command == "PUT":
            return "create" if self.headers.get("if-none-match") else "put"
        if self.command == "GET":
            return "list" if "list-type" in parse_qs(query) else "get"
        return "delete"

    def _answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, length: int
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _UNSENT:
                self.send_header(name, value)
        self.send_header("content-length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body)
        if len(body) != length:
            self.close_connection = True
