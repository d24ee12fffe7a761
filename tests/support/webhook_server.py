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
from typing import Any

from devtools.services.http_service import HttpService, QuietHandler

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


class WebhookServer(HttpService):
    """The server. ``received`` are all requests, in order."""

    def __init__(self, answer: Answerer = accept, context: ssl.SSLContext | None = None) -> None:
        super().__init__(_Handler, context=context)
        self.answer = answer
        self.received: list[Received] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"{self.endpoint}/events"

    def taken(self) -> list[dict[str, Any]]:
        """The events of the requests that it took, by their keys: of one that was not answered, and
        came again, once."""
        with self._lock:
            requests = [one for one in self.received if one.status in (0, 200)]
        found = {one.id: one.events() for one in requests}
        assert all(found[one.id] == one.events() for one in requests)
        return [event for events in found.values() for event in events]

    def take(self, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str]]:
        """Return status and headers for a request; the status 0 is no answer."""
        with self._lock:
            found = Received(headers, body, 0)
            status, more = self.answer(len(self.received) + 1, found.events())
            self.received.append(Received(headers, body, status))
        return status, more


class _Handler(QuietHandler):
    def do_POST(self) -> None:
        status, headers = self.server.service.take(self.received_headers(), self.received_body())
        self.respond(status, headers=headers)
