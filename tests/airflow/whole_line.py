"""A pipeline of real servers, from a database to the warehouse, and an Airflow for its DAGs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2 import sql

from devtools.demo.compare import Comparison, compare
from devtools.services.airflow import AirflowOptions, AirflowServices
from devtools.services.airflow_api import AirflowApi
from devtools.services.postgres import PostgresServer
from devtools.services.process import Child
from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import poll
from tests.fixtures.settings import as_toml
from tideline.settings import Settings, Warehouse, make_settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store

BIN = Path(sys.prefix) / "bin"
RUN_TIMEOUT_S = 900.0
TABLES = ("public.orders", "public.items", "public.people")
SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, note text, placed_at timestamp NOT NULL);
CREATE TABLE items (order_id int, line int, what text, placed_at timestamp NOT NULL,
    PRIMARY KEY (order_id, line));
CREATE TABLE people (name text PRIMARY KEY, age int, placed_at timestamp NOT NULL);
INSERT INTO orders SELECT n, 'order ' || n, '2026-03-01'::timestamp + n * interval '1 hour'
    FROM generate_series(1, 400) n;
INSERT INTO items SELECT n, m, 'item', '2026-03-01'::timestamp + n * interval '1 hour'
    FROM generate_series(1, 200) n, generate_series(1, 2) m;
INSERT INTO people SELECT 'Smith, ' || n, n, '2026-03-01'::timestamp + n * interval '1 hour'
    FROM generate_series(1, 200) n;
"""


@dataclass
class WholeLine:
    """Tables of `TABLES` in ``dsn``, each with a column ``placed_at``."""

    airflow: AirflowServices
    config: Path
    settings: Settings
    dsn: str

    @property
    def api(self) -> AirflowApi:
        return self.airflow.api

    def run(self, *statements: str, **values: int) -> None:
        """Run statements in one transaction; ``values`` are their named parameters."""
        connection = psycopg2.connect(self.dsn)
        try:
            with connection, connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement, values or None)
        finally:
            connection.close()

    def succeeds(self, dag_id: str, run_id: str) -> None:
        """Wait for the run's end; AssertionError with the logs of what failed."""
        state = self.api.wait(dag_id, run_id, timeout_s=RUN_TIMEOUT_S)
        assert state == "success", self._failure(dag_id, run_id)

    def dumped(self) -> bool:
        """Whether the first dump of every table has ended."""
        chain = Chain(open_store(self.settings.store), self.settings.pipeline)
        entry = chain.tail()
        tables = {} if entry is None else chain.open_state(entry).tables
        return all(name in tables and tables[name].complete_seq is not None for name in TABLES)

    def merge(self) -> None:
        """Merge all that there is."""
        self.succeeds("tideline_merge", self.api.trigger("tideline_merge"))

    def expect_equal(self) -> None:
        """Merge until every table is what it is in the source, which must be at rest."""
        end = time.monotonic() + RUN_TIMEOUT_S
        while True:
            found = self.found()
            if found.equal:
                return
            assert time.monotonic() < end, found
            self.merge()

    def found(self) -> Comparison:
        """How the warehouse's tables are beside the source's."""
        return compare(self.dsn, self.settings.warehouse_storage, TABLES)

    def _failure(self, dag_id: str, run_id: str) -> str:
        tasks = self.api.tasks(dag_id, run_id)
        failed = [task for task, state in tasks.items() if state == "failed"]
        logs = [self.api.log(dag_id, run_id, task)[-4000:] for task in failed]
        return "\n".join([str(tasks), *logs])


@contextmanager
def whole_line(
    folder: Path,
    postgres: PostgresServer,
    valkey: ValkeyServer,
    *,
    bin_folder: Path = BIN,
    worker_bin: Path = BIN,
    environment: Mapping[str, str] | None = None,
    place: Warehouse | None = None,
) -> Iterator[WholeLine]:
    """The worker of ``worker_bin`` on a database of its own, and the Airflow of ``bin_folder``,
    with ``environment`` laid over what the demo's has. Of Tideline it is given what the README
    says, and no more. With a ``place`` in S3 all is stored there, and secrets are in the
    environment alone."""
    name = f"line_{time.time_ns()}"
    dsn, metadata = database(postgres, name), database(postgres, f"{name}_airflow")
    config = folder / "tideline.toml"
    values = {
        "pipeline": name,
        "source": {"url": dsn, "tables": ["public.*"]},
        "control": {"url": valkey.url()},
        "capture": {"flush_interval_s": 0.5},
        "merge": {"driver_memory": "1g"},
        "aggregates": {
            "order": {
                "root": "public.orders",
                "children": {"items": {"table": "public.items", "keys": {"order_id": "id"}}},
            }
        },
        **_places(folder, place),
    }
    settings = make_settings(values)
    hidden = {} if place is None else _hide(values)
    config.write_text(as_toml(values))
    options = AirflowOptions(config, "", bin_folder, {**hidden, **(environment or {})})
    command = [str(worker_bin / "tideline"), "capture", "--config", str(config)]
    worker = Child("worker", command, run_folder=folder, environment={**os.environ, **hidden})
    with AirflowServices(folder / "airflow", metadata, options) as airflow:
        line = WholeLine(airflow, config, settings, dsn)
        line.run(SHOP)
        worker.start()
        try:
            poll("the tables are dumped", line.dumped)
            line.expect_equal()
            yield line
        finally:
            worker.stop()


def _places(folder: Path, place: Warehouse | None) -> dict[str, dict[str, Any]]:
    """The sections for store and warehouse."""
    if place is None:
        return {name: {"url": (folder / name).as_uri()} for name in ("store", "warehouse")}
    access = {name: value for name, value in place.access().items() if value is not None}
    access["secret_access_key"] = place.secret()
    return {
        "store": {"url": f"{place.url}/store", **access},
        "warehouse": {"url": f"{place.url}/warehouse"},
    }


def _hide(values: dict[str, Any]) -> dict[str, str]:
    """Take the secrets out of ``values``; the environment that has them instead."""
    return {
        "TIDELINE_STORE__SECRET_ACCESS_KEY": values["store"].pop("secret_access_key"),
        "TIDELINE_CONTROL__URL": values["control"].pop("url"),
    }


def database(postgres: PostgresServer, name: str) -> str:
    """An empty database; its url."""
    connection = psycopg2.connect(postgres.dsn())
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    finally:
        connection.close()
    return postgres.dsn(name)
