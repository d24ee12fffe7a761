"""The servers of a benchmark, and a worker with measurable cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil
import psycopg2

from devtools.services.postgres import PostgresServer
from devtools.services.spark_cluster import SparkCluster
from devtools.services.valkey import ValkeyServer
from tideline.settings import Settings, make_settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_capture.app import run_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SERVER = {
    "fsync": "off",
    "synchronous_commit": "off",
    "max_wal_size": "16GB",
    "shared_buffers": "512MB",
    "autovacuum": "off",
}
IDLE_S = 0.5


@dataclass
class CaptureRig:
    """A source with a database ``shop``; ``cursor`` is on it, in autocommit."""

    folder: Path
    postgres: PostgresServer
    valkey: ValkeyServer
    cursor: Any

    @property
    def dsn(self) -> str:
        return self.postgres.dsn("shop")

    def settings(
        self,
        *,
        initial: str = "log-only",
        pipeline: str = "shop",
        places: Mapping[str, Mapping[str, Any]] | None = None,
        publish: Mapping[str, Mapping[str, Any]] | None = None,
        **capture: Any,
    ) -> Settings:
        """Return settings of ``pipeline``, with the publishers ``publish``; its store and warehouse
        are ``places`` (sections of the settings), or local folders."""
        limits = {"heartbeat_s": 1.0, "takeover_after_s": 2.0, **capture}
        local = {name: {"url": f"file://{self.folder}/{name}"} for name in ("store", "warehouse")}
        return make_settings(
            {
                "pipeline": pipeline,
                "source": {"url": self.dsn, "tables": ["public.*"], "initial": initial},
                "control": {"url": self.valkey.url()},
                "capture": limits,
                "publish": publish or {},
                **(local if places is None else places),
            }
        )


def on_cluster(cluster: SparkCluster, executor_memory: str) -> dict[str, Any]:
    """Return the keys of ``[merge]`` for local folders and executors of a core each on
    ``cluster``."""
    return {
        **cluster.settings,
        "executor_memory": executor_memory,
        "executor_cores": 1,
        "shared_files": True,
    }


@contextmanager
def spark_application(
    name: str = "benchmark",
    *,
    pipeline: Settings | None = None,
    others: Mapping[str, str] | None = None,
    every_format: bool = False,
) -> Iterator[SparkSession]:
    """Run a Spark application of two cores, with what the places of ``pipeline`` need, and
    ``others`` of Spark's settings; ``every_format``: for tables of any format."""
    from tideline.warehouse.hadoop import s3_settings  # not for captures alone
    from tideline.warehouse.iceberg.names import MARKER_SETTING
    from tideline.warehouse.job_jars import every_jar, job_jars
    from tideline_spark.session import make_session

    in_s3 = {} if pipeline is None else s3_settings(pipeline)
    more = {MARKER_SETTING: "true"} if every_format else {}
    jars = every_jar() if every_format else job_jars(pipeline)
    spark = make_session(
        master="local[2]",
        driver_memory="3g",
        jars=[str(jar) for jar in jars],
        app_name=name,
        others={**in_s3, **more, **(others or {})},
    )
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def rig(**server: str) -> Iterator[CaptureRig]:
    """Start a separate PostgreSQL and Valkey, removed at the end."""
    with TemporaryDirectory(prefix="tideline-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with (
            PostgresServer(folder / "postgres", settings={**_SERVER, **server}) as postgres,
            ValkeyServer(folder / "valkey") as valkey,
        ):
            admin = psycopg2.connect(postgres.dsn("postgres"))
            admin.autocommit = True
            admin.cursor().execute("CREATE DATABASE shop")
            admin.close()
            connection = psycopg2.connect(postgres.dsn("shop"))
            connection.autocommit = True
            yield CaptureRig(folder, postgres, valkey, connection.cursor())
            connection.close()


@dataclass
class CpuCost:
    """The cost of some work: seconds of wall and of CPU (this process; another's)."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    sender_cpu_s: float = 0.0
    rows: int = 0


def run_until_idle(
    settings: Settings, rig: CaptureRig | None = None, *, begin: str = "reading"
) -> CpuCost:
    """Run the worker in this process until it is idle; with ``rig``, watch its walsender.

    The wall time is from the first arrival at the point ``begin`` (it reads the log; it orders the
    first chunk: ``between-chunks``) to its last manifest that holds rows; the CPU is all that the
    process used, start and idle tail included.
    """
    clock = _Clock(begin)
    cpu = time.process_time()
    chain = Chain(open_store(settings.store), settings.pipeline)
    before = chain.tail()
    sender = Sender()
    if rig is None:
        run_worker(settings, until_idle_s=IDLE_S, on_point=clock.note)
    else:
        with watch_sender(rig) as sender:
            run_worker(settings, until_idle_s=IDLE_S, on_point=clock.note)
    after = chain.tail()
    number = before.manifest.manifest_number if before else 0
    entries = list(chain.entries(number + 1, after.manifest.manifest_number)) if after else []
    rows = sum(part.rows for entry in entries for part in entry.manifest.parts)
    return CpuCost(clock.wall_s, time.process_time() - cpu, sender.cpu_s, rows)


class _Clock:
    """The time from the first arrival at a point to the last manifest that names parts."""

    def __init__(self, begin: str) -> None:
        self._begin = begin
        self._begun: float | None = None
        self._ended = 0.0
        self._uploading = False

    @property
    def wall_s(self) -> float:
        return max(0.0, self._ended - (self._begun or 0.0)) if self._ended else 0.0

    def note(self, point: str) -> None:
        if point == self._begin and self._begun is None:
            self._begun = time.perf_counter()
        elif point == "before-part-put":
            self._uploading = True
        elif point == "after-manifest" and self._uploading:
            self._uploading = False
            self._ended = time.perf_counter()


class Sender:
    """The CPU seconds of our walsender, as last seen."""

    def __init__(self) -> None:
        self.cpu_s = 0.0


@contextmanager
def watch_sender(rig: CaptureRig) -> Iterator[Sender]:
    sender, stop = Sender(), threading.Event()

    def watch() -> None:
        connection = psycopg2.connect(rig.postgres.dsn("postgres"))
        connection.autocommit = True
        cursor = connection.cursor()
        while not stop.wait(0.05):
            cursor.execute("SELECT pid FROM pg_stat_replication")
            for (pid,) in cursor.fetchall():
                try:
                    times = psutil.Process(pid).cpu_times()
                except psutil.NoSuchProcess:
                    continue
                sender.cpu_s = max(sender.cpu_s, times.user + times.system)
        connection.close()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield sender
    stop.set()
    thread.join()
