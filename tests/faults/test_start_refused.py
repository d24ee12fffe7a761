"""What keeps a worker from starting: it says what to change and shows no secret."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from devtools.services.s3 import S3Server
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.services import Database

CANARY = "canary-5eacafe"
MISCONFIGURED = 2


class ForgetfulStore(BaseHTTPRequestHandler):
    """An S3 look-alike that takes every PUT, whatever ``If-None-Match`` asks."""

    objects: dict[str, bytes]
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"")

    def do_GET(self) -> None:
        found = self.objects.get(self.path)
        self.answer(404 if found is None else 200, found or b"")

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        self.objects.pop(self.path, None)
        self.answer(204, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"e"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test reads what the worker prints."""


@pytest.fixture
def forgetful() -> Iterator[tuple[str, dict[str, bytes]]]:
    """The store's address, and what it holds."""
    objects: dict[str, bytes] = {}
    handler = type("Handler", (ForgetfulStore,), {"objects": objects})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", objects
    server.shutdown()
    thread.join()
    server.server_close()


def refused(shop: Pipeline[Database], *words: str) -> str:
    """The worker ends as misconfigured, names ``words``, and leaves the source alone."""
    worker = shop.start()
    code, output = worker.wait(), worker.output()
    assert code == MISCONFIGURED, output[-3000:]
    for word in words:
        assert word in output, output
    assert "Traceback" not in output
    assert CANARY not in output
    slots = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
    assert shop.database.rows(slots) == []
    assert shop.database.rows("SELECT 1 FROM pg_publication") == []
    return output


def test_a_store_that_cannot_be_written(
    database: Database, pipeline_of: PipelineFactory, tmp_path: Path
) -> None:
    """A file where its directory should be keeps root out too."""
    (tmp_path / "file").write_text("")
    url = f"file://{tmp_path}/file/store"
    refused(pipeline_of(database, store={"url": url}), "cannot be written", "store.url")


def test_a_store_that_ignores_create_only(
    database: Database, pipeline_of: PipelineFactory, forgetful: tuple[str, dict[str, bytes]]
) -> None:
    endpoint, objects = forgetful
    store = {
        "url": "s3://bucket/lake",
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "id",
        "secret_access_key": CANARY,
    }
    refused(pipeline_of(database, store=store), "two writers", "If-None-Match")
    assert not [path for path in objects if "/log/" in path]


def test_a_store_that_refuses_our_key(
    database: Database, pipeline_of: PipelineFactory, s3: S3Server
) -> None:
    store = {
        "url": "s3://tideline/refused",
        "endpoint": s3.endpoint,
        "region": "us-east-1",
        "access_key_id": s3.access_key_id,
        "secret_access_key": CANARY,
    }
    refused(pipeline_of(database, store=store), "access_key_id")


@pytest.mark.parametrize("special", ["", "/p@ss:w%rd"])
def test_a_wrong_password(database: Database, pipeline_of: PipelineFactory, special: str) -> None:
    parts = urlsplit(database.dsn)
    host = parts.netloc.rpartition("@")[2]
    wrong = parts._replace(netloc=f"postgres:{quote(CANARY + special, safe='')}@{host}").geturl()
    output = refused(pipeline_of(database, source={"url": wrong}), "password", "source.url")
    assert quote(CANARY + special, safe="") not in output


def test_a_port_that_is_taken(database: Database, pipeline_of: PipelineFactory) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        shop = pipeline_of(database, capture={"metrics_port": port})
        refused(shop, str(port), "capture.metrics_port")
    assert shop.tail() is None
