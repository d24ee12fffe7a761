"""The worker's HTTP server: ``/metrics``, ``/healthz`` and ``/readyz`` of this process.

One thread per request, none of the worker's own: it can report a worker thread that hangs. It has
neither a login nor TLS, and its pages contain no row's value and no secret.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from socket import AF_INET, AF_INET6, SHUT_RDWR
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from tideline.contract.errors import Misconfigured
from tideline_capture.health import Health, HealthVerdict

_SILENT_S = 10.0
"""A client that sends nothing for this long is disconnected: each one costs a thread."""
CONNECTIONS_MAX = 64
"""The limit of connections. Above it the oldest is closed: a client that asks for a page has it in
a few milliseconds."""

_Start = Callable[[str, list[tuple[str, str]]], Any]
_App = Callable[[dict[str, Any], _Start], Iterable[bytes]]


def serve(address: str, port: int, registry: CollectorRegistry, health: Health) -> None:
    """Serve at the IP ``address`` until the process ends; not at all where ``port`` is 0.

    Raises Misconfigured when the address cannot be listened at.
    """
    if port == 0:
        return
    try:
        server = make_server(
            address,
            port,
            _app(registry, health),
            _Server6 if ip_address(address).version == 6 else _Server,
            handler_class=_Handler,
        )
    except OSError as error:
        raise Misconfigured(
            f"metrics cannot be served at {address}, port {port}: {error.strerror}",
            hint="set capture.metrics_port to a port that is free, or to 0, and"
            " capture.metrics_address to an address of this machine",
        ) from None
    threading.Thread(target=server.serve_forever, name="web", daemon=True).start()


class _Server(ThreadingMixIn, WSGIServer):
    address_family = AF_INET
    daemon_threads = True
    request_queue_size = 2 * CONNECTIONS_MAX

    def __init__(self, *given: Any) -> None:
        self._open: dict[Any, None] = {}
        self._changing = threading.Lock()
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            if len(self._open) >= CONNECTIONS_MAX:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away, or was disconnected."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Server6(_Server):
    address_family = AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a probe every few seconds is no news."""


def _app(registry: CollectorRegistry, health: Health) -> _App:
    pages: Mapping[str, _App] = {
        "/metrics": make_wsgi_app(registry),
        "/healthz": _answer(health.alive),
        "/readyz": _answer(health.ready),
    }

    def app(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        page = pages.get(environ["PATH_INFO"])
        if page is None:
            return _text(start, "404 Not Found", f"there are {', '.join(pages)}")
        body = page(environ, start)
        return () if environ["REQUEST_METHOD"] == "HEAD" else body

    return app


def _answer(judge: Callable[[], HealthVerdict]) -> _App:
    def app(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _text(start, "405 Method Not Allowed", "use GET")
        verdict = judge()
        if verdict.ok:
            return _text(start, "200 OK", f"ok: {verdict.reason}")
        return _text(start, "503 Service Unavailable", f"failed: {verdict.reason}")

    return app


def _text(start: _Start, status: str, text: str) -> Iterable[bytes]:
    body = f"{text}\n".encode()
    head = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
    ]
    start(status, head)
    return [body]
