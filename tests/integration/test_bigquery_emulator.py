"""BigQuery's emulator as a server: on loopback alone, started and stopped, and what it has wrong.

What is wrong is why tests use the front: once the emulator does as BigQuery does, a test here
fails, and the front can do less.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from devtools.services.bigquery import BigQueryServer
from devtools.services.ports import LOOPBACK


@pytest.fixture
def client(bigquery_server: BigQueryServer) -> Iterator[bigquery.Client]:
    """A client of the emulator itself, with a dataset."""
    credentials: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
    options = ClientOptions(api_endpoint=bigquery_server.endpoint)
    name = f"test_{uuid.uuid4().hex[:12]}"
    made = bigquery.Client("tideline", credentials, client_options=options)
    made.default_query_job_config = bigquery.QueryJobConfig(default_dataset=f"tideline.{name}")
    made.create_dataset(name)
    yield made
    made.delete_dataset(name, delete_contents=True)


def query(client: bigquery.Client, sql: str, job_id: str | None = None) -> list[tuple[Any, ...]]:
    once: Any = {"retry": None, "job_retry": None}
    return [tuple(row) for row in client.query(sql, job_id=job_id, **once).result()]


def test_it_listens_on_loopback_until_it_is_stopped(tmp_path: Path) -> None:
    with BigQueryServer(tmp_path / "bigquery") as server:
        found = psutil.Process(server.pid).net_connections("tcp")
        hosts = [one.laddr.ip.removeprefix("::ffff:") for one in found if one.status == "LISTEN"]
        assert hosts == [LOOPBACK] * 2  # REST and gRPC
    with socket.socket() as probe:
        assert probe.connect_ex((LOOPBACK, server.port)) != 0


def test_it_runs_an_id_twice(client: bigquery.Client) -> None:
    query(client, "CREATE TABLE t (id INT64)")
    for _ in range(2):
        query(client, "INSERT t (id) VALUES (1)", "tideline-1")
    assert query(client, "SELECT COUNT(*) FROM t") == [(2,)]


def test_it_merges_two_rows_of_a_source_into_one(client: bigquery.Client) -> None:
    query(client, "CREATE TABLE t (id INT64, a INT64)")
    query(client, "INSERT t (id, a) VALUES (1, 0)")
    query(
        client,
        "MERGE t USING (SELECT 1 AS id, 2 AS a UNION ALL SELECT 1, 3) AS s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET a = s.a",
    )
    assert query(client, "SELECT a > 0 FROM t") == [(True,)]
