"""An HTTP service of a test, on loopback and in the test's own process."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections open, and prints nothing: pytest shows what a test says."""

    protocol_version = "HTTP/1.1"
    server: ServiceServer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class ServiceServer(ThreadingHTTPServer):
    """Tells its handlers the ``service`` that they answer for."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, service: Any, handler: type[QuietHandler], port: int) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.service = service

    def handle_error(self, request: object, client_address: object) -> None:
        """Quiet: clients that give up are what many tests are about."""


class HttpService:
    """Serves while it is entered, by ``handler``, on ``port``; 0: a free one."""

    def __init__(self, handler: type[QuietHandler], port: int = 0) -> None:
        self._server = ServiceServer(self, handler, port)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
