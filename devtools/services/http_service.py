"""An HTTP service of a test, on loopback and in the test's own process."""

from __future__ import annotations

import ssl
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from devtools.services.ports import LOOPBACK


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections open, and prints nothing: pytest shows what a test says."""

    protocol_version = "HTTP/1.1"
    server: ServiceServer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def received_body(self) -> bytes:
        """Return the whole body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def received_headers(self) -> dict[str, str]:
        """Return the headers of the request, with names in small letters."""
        return {name.lower(): text for name, text in self.headers.items()}

    def respond(self, status: int, body: bytes = b"", headers: Mapping[str, str] = {}) -> None:
        """Send the answer; with the status 0 none: the connection is closed."""
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)


class ServiceServer(ThreadingHTTPServer):
    """Tells its handlers the ``service`` that they answer for."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, service: Any, handler: type[QuietHandler], port: int) -> None:
        super().__init__((LOOPBACK, port), handler)
        self.service = service

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what is no client that gives up: that is what many tests are about."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class HttpService:
    """Serves while it is entered, by ``handler``, on ``port``; 0: a free one. With ``context`` it
    speaks TLS."""

    def __init__(
        self,
        handler: type[QuietHandler],
        port: int = 0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._handler = handler
        self._context = context
        self._serves = False
        self._server = self._listening(port)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def endpoint(self) -> str:
        return f"http{'' if self._context is None else 's'}://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Serve. One that was stopped is at the same port again."""
        if self._server.fileno() < 0:
            self._server = self._listening(self.port)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self._serves = True

    def stop(self) -> None:
        """Be away, until it is started again; safe to call twice."""
        if self._serves:
            self._serves = False
            self._server.shutdown()
            self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _listening(self, port: int) -> ServiceServer:
        server = ServiceServer(self, self._handler, port)
        if self._context is not None:
            server.socket = self._context.wrap_socket(server.socket, server_side=True)
        return server
