"""An endpoint of webhooks: a real HTTP server, with answers that a test decides."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

LOOPBACK = "127.0.0.1"
SECRET = "a secret of tests"


@dataclass(frozen=True, slots=True)
class Received:
    """A request. ``status`` is what it was answered with; 0: not at all."""

    headers: Mapping[str, str]
    body: bytes
    status: int

    @property
    def id(self) -> str:
        return self.headers["idempotency-key"]

    def events(self) -> list[dict[str, Any]]:
        """The events in the body, of either form."""
        if self.headers["content-type"].endswith("x-ndjson"):
            return [json.loads(line) for line in self.body.splitlines()]
        found: list[dict[str, Any]] = json.loads(self.body)
        return found

    def is_signed(self, secret: bytes = SECRET.encode()) -> bool:
        """Whether it has a signature by ``secret``, as Standard Webhooks has it."""
        head = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}."
        digest = hmac.new(secret, head.encode() + self.body, hashlib.sha256).digest()
        wanted = f"v1,{base64.b64encode(digest).decode()}"
        return wanted in self.headers["webhook-signature"].split()


Answerer = Callable[[int, list[dict[str, Any]]], tuple[int, Mapping[str, str]]]
"""The answer to a request: its number from 1 on, and its events; status 0 closes the
connection."""


def accept(number: int, events: list[dict[str, Any]]) -> tuple[int, Mapping[str, str]]:
    return 200, {}


class WebhookServer:
    """The server. ``received`` are all requests, in order."""

    def __init__(self, answer: Answerer = accept, context: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/events"

    def taken(self) -> list[dict[str, Any]]:
        """The events of the requests that it took, by their keys: of one that was not answered, and
        came again, once."""
        with self._lock:
            requests = [one for one in self.received if one.status in (0, 200)]
        found = {one.id: one.events() for one in requests}
        assert all(found[one.id] == one.events() for one in requests)
        return [event for events in found.values() for event in events]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="webhooks", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str]]:
        with self._lock:
            found = Received(headers, body, 0)
            status, more = self.answer(len(self.received) + 1, found.events())
            self.received.append(Received(headers, body, status))
        return status, more

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): text for name, text in self.headers.items()}
                status, more = server._take(headers, body)
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, text in {"Content-Length": "0", **more}.items():
                    self.send_header(name, text)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        return Handler
