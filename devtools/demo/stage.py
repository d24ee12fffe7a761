"""The demo's stage: every server and process it runs, started once and all ended together.

The shop's database, Airflow's PostgreSQL, Valkey, the capture worker, the traffic and Airflow, each
a child of this process with a pid file in the run folder: the next start in the same folder ends
the children that a SIGKILL left behind, and no others.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from devtools.bigquery.service import BigQueryService
from devtools.demo.databases.base import CAPTURE_USER, ShopDatabase
from devtools.demo.databases.choose import create_shop
from devtools.demo.databases.postgres import start_with_database
from devtools.demo.traffic import DSN_VARIABLE, Report, read_report
from devtools.services.airflow import AirflowOptions, AirflowServices
from devtools.services.commands import worker
from devtools.services.postgres import NOT_DURABLE, PostgresServer
from devtools.services.private_file import write_private
from devtools.services.process import Child, leftovers
from devtools.services.s3 import S3Server
from devtools.services.valkey import ValkeyServer
from devtools.standing import toml_lines
from tideline.contract.errors import Unavailable
from tideline.contract.target_url import TableFormatName
from tideline.settings import Settings, load_settings

PIPELINE = "shop"
PROJECT = "tideline-demo"
"""The project of the emulator of BigQuery."""
FLUSH_INTERVAL_S = 5.0
AIRFLOW_TIMEOUT_S = 1_000.0
POLL_S = 0.2
Storage = Literal["s3", "files"]
_TRAFFIC_STOP_S = 60.0


class DemoStage:
    """All of the demo's processes, in ``folder``: the shop is in ``database``, and the warehouse's
    tables have the format ``target``."""

    def __init__(
        self,
        folder: Path,
        database: ShopDatabase,
        storage: Storage = "s3",
        target: TableFormatName = "delta",
    ) -> None:
        self.folder = folder.absolute()
        self.database = database
        self.target = target
        self.source = database.new_server(self.folder)
        self.metadata = PostgresServer(self.folder, settings=NOT_DURABLE, name="metadata")
        self.valkey = ValkeyServer(self.folder)
        self.s3 = S3Server(self.folder) if storage == "s3" else None
        self.bigquery = BigQueryService(self.folder) if target == "bigquery" else None
        self._pool = ThreadPoolExecutor(max_workers=3, thread_name_prefix="stage")
        self._worker: Child | None = None
        self._traffic: Child | None = None
        self._airflow: AirflowServices | None = None
        self._airflow_start: Future[AirflowServices] | None = None

    def clear(self) -> list[str]:
        """End and remove an earlier run's leftovers in the folder; return names of running ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ended = leftovers(self.folder)
        self.source.remove()
        self.metadata.remove()
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        return ended

    def start_servers(self) -> None:
        """Start source and metadata with their databases, and Valkey, concurrently."""
        starting: list[Future[Any]] = [
            self._pool.submit(self.source.start),
            self._pool.submit(start_with_database, self.metadata, "airflow"),
            self._pool.submit(self.valkey.start),
        ]
        for more in (self.s3, self.bigquery):
            if more is not None:
                starting.append(self._pool.submit(more.start))
        for server in starting:
            server.result()

    def open_source(self) -> dict[str, int]:
        """Make the shop, its capture user, and the settings file; return rows per table."""
        rows = create_shop(self.source_dsn)
        password = secrets.token_hex(16)
        self.database.grant_capture(self.source_dsn, password)
        self._write_settings(self.source.url(user=CAPTURE_USER, password=password))
        return rows

    def begin_airflow(self) -> None:
        """Start Airflow in the background: it takes longer than all the rest."""
        options = AirflowOptions(config=self.config, merge_schedule="")
        metadata = self.metadata.dsn("airflow")
        self._airflow = AirflowServices(self.folder / "airflow", metadata, options)
        self._airflow_start = self._pool.submit(self._airflow.start)

    def start_traffic(self) -> None:
        """Start the traffic; ``traffic_report`` returns its work."""
        command = [sys.executable, "-m", "devtools.demo.traffic", "--report", str(self._report)]
        self._traffic = self._child("traffic", command, {DSN_VARIABLE: self.source_dsn})
        self._traffic.start()

    def stop_traffic(self) -> Report:
        """Let it finish its transactions; return its final report."""
        traffic = _started(self._traffic, "the traffic")
        code = traffic.stop(_TRAFFIC_STOP_S)
        report = read_report(self._report)
        if code != 0 or report is None or not report.finished:
            raise traffic.ended(code)
        return report

    def start_worker(self) -> None:
        """Start capture, with the command that a deployment runs."""
        program, *words = worker(str(self.config))
        command = [str(Path(sys.executable).parent / program), *words]
        self._worker = self._child("worker", command, {})
        self._worker.start()

    def traffic_report(self) -> Report:
        """Return the traffic's work so far; waits for its first report."""
        _started(self._traffic, "the traffic").wait_until(self._report.exists, timeout_s=60)
        report = read_report(self._report)
        if report is None:
            raise Unavailable("the traffic's report is gone")
        return report

    def wait(
        self,
        ready: Callable[[], bool],
        *,
        what: str,
        timeout_s: float,
        poll_s: float = POLL_S,
    ) -> None:
        """Poll ``ready``; Unavailable when the worker or the traffic dies, or time is up."""
        end = time.monotonic() + timeout_s
        while not ready():
            for child in (self._worker, self._traffic):
                if child is not None and not child.running and child.returncode != 0:
                    raise child.ended(child.returncode)
            if time.monotonic() > end:
                raise Unavailable(f"{what}: not in {timeout_s:g} s")
            time.sleep(poll_s)

    def airflow(self) -> AirflowServices:
        """Return Airflow once it is up; raises what its start raised."""
        if self._airflow_start is None:
            raise Unavailable("airflow was not started")
        start = self._airflow_start
        self.wait(start.done, what="airflow starts", timeout_s=AIRFLOW_TIMEOUT_S)
        return start.result()

    @property
    def airflow_is_up(self) -> bool:
        return self._airflow_start is not None and self._airflow_start.done()

    @property
    def config(self) -> Path:
        """The ``tideline.toml`` of worker, DAGs and commands, once the source is open."""
        return self.folder / "tideline.toml"

    @property
    def settings(self) -> Settings:
        return load_settings(self.config)

    @property
    def source_dsn(self) -> str:
        """The shop's owner's address: for traffic and comparison, not for capture."""
        return self.source.url()

    def stop(self) -> None:
        """End everything, the worker before its source; safe at any moment and twice.

        A failure with one does not keep the others from being ended.
        """
        with ExitStack() as ending:  # From the last line to the first.
            ending.callback(self.metadata.remove)
            ending.callback(self.source.remove)
            ending.callback(self.valkey.stop)
            for more in (self.s3, self.bigquery):
                if more is not None:
                    ending.callback(more.stop)
            ending.callback(self._pool.shutdown)
            ending.callback(self._stop_airflow)
            for child in (self._worker, self._traffic):
                # Ctrl-C may have come before it was started.
                if child is not None and child.started:
                    ending.callback(child.stop)

    def _stop_airflow(self) -> None:
        if self._airflow is None or self._airflow_start is None:
            return
        # A start in progress would continue after the first stop.
        while not self._airflow_start.done():
            self._airflow.stop()
            time.sleep(POLL_S)
        self._airflow.stop()

    @property
    def _report(self) -> Path:
        return self.folder / "traffic.json"

    def _child(self, name: str, command: list[str], extra: dict[str, str]) -> Child:
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("TIDELINE_") or key == "TIDELINE_CACHE"
        }
        environment = {**inherited, **extra, "PYTHONUNBUFFERED": "1"}
        return Child(name, command, run_folder=self.folder, environment=environment)

    def _place(self, name: str) -> dict[str, Any]:
        """Return the section of the settings for the store or the warehouse."""
        if self.s3 is None:
            return {"url": (self.folder / name).as_uri()}
        # The warehouse is reached as the store is.
        access = self.s3.access if name == "store" else {}
        return {"url": f"s3://tideline/{name}", **access}

    def _write_settings(self, source_url: str) -> None:
        values: dict[str, dict[str, Any]] = {
            "source": {
                "url": source_url,
                "tables": [f"{self.database.schema}.*"],
                "initial": "dump",
            },
            "store": self._place("store"),
            "control": {"url": self.valkey.url()},
            "warehouse": self._place("warehouse"),
            "capture": {"flush_interval_s": FLUSH_INTERVAL_S, "heartbeat_s": 2.0},
        }
        if self.target == "iceberg":
            values["warehouse"]["format"] = "iceberg"
            url = f"sqlite:///{self.folder / 'catalog.db'}"
            values["warehouse.iceberg"] = {"catalog": "jdbc", "url": url}
        if self.bigquery is not None:
            values["warehouse"]["format"] = "bigquery"
            endpoint = self.bigquery.endpoint
            values["warehouse.bigquery"] = {"project": PROJECT, "endpoint": endpoint}
        lines = [f"pipeline = {json.dumps(PIPELINE)}"]
        for section, keys in values.items():
            lines += ["", f"[{section}]", *toml_lines(keys)]
        write_private(self.config, "\n".join(lines) + "\n")


def _started(child: Child | None, name: str) -> Child:
    if child is None:
        raise Unavailable(f"{name} was not started")
    return child
