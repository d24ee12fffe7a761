"""Rebuild, verification, repair and maintenance on a standalone cluster of two workers, with store
and warehouse in S3: the commands as users run them, beside a real worker that captures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.demo.compare import compare
from devtools.services.s3 import S3Server
from devtools.services.spark_cluster import EXECUTOR, SparkCluster
from tests.fixtures.capture import Pipeline, PipelineFactory, WorkerProcess
from tests.fixtures.object_storage import NEEDS_S3, place_in
from tests.fixtures.services import Database
from tests.support.cluster_traces import logs, pages
from tests.support.command_lines import CommandLines
from tests.support.spark_events import SparkEvents
from tideline.contract.layout import table_path
from tideline.contract.open_state import OpenState
from tideline.contract.schema import parse_table
from tideline.java import java_home
from tideline.warehouse.access import storage_options
from tideline.warehouse.delta.reader import delta_table
from tideline_spark.local_parts import ROWS_MAX

pytestmark = [
    pytest.mark.timeout(1_800),
    NEEDS_S3,
]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 900.0
ORDERS = "public.orders"
ROWS = ROWS_MAX + 2_000
"""So many that parts are read by executors: fewer are read by the driver."""
DAMAGED = 77
TIDELINE = "from tideline_console.app import main; main()"
STATEMENT = """
import sys
from pathlib import Path
from tideline.settings import load_settings
from tideline_console.spark import spark_session

with spark_session(load_settings(Path(sys.argv[1])), "statement") as spark:
    spark.sql(sys.argv[2])
"""
BOTH_WORKERS = """
spark.scheduler.minRegisteredResourcesRatio 1.0
spark.scheduler.maxRegisteredResourcesWaitingTime 10min
"""
"""Tasks wait until all cores that the application may have are there."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "cluster") as started:
        yield started


@pytest.fixture
def shop(
    database: Database, pipeline_of: PipelineFactory, s3: S3Server, cluster: SparkCluster
) -> Pipeline[Database]:
    """Its segments hold more rows than a dump's chunk: parts are few."""
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        f"INSERT INTO orders SELECT n, 'order ' || n FROM generate_series(1, {ROWS}) n",  # noqa: S608
    )
    place = place_in(s3)
    sizes = {"driver_memory": "1g", "executor_memory": "512m", "executor_cores": 1, "cores_max": 2}
    return pipeline_of(
        database,
        store={"url": f"{place.url}/store", **s3.access},
        warehouse={"url": f"{place.url}/warehouse"},
        capture={"chunk_rows": 3_000},
        merge={**cluster.settings, **sizes},
    )


@dataclass(frozen=True)
class Commands:
    """Commands of a pipeline, each of which must run on the cluster."""

    shop: Pipeline[Database]
    cluster: SparkCluster
    events: SparkEvents
    secrets: list[str]
    lines: CommandLines

    def run(self, *words: str, code: int = 0) -> str:
        """Run ``tideline`` with ``words``, which is to end with ``code``; return what it
        printed."""
        line = ["-c", TIDELINE, *words, "--config", str(self.shop.config)]
        return self._on_both_workers(
            f"tideline {words[0]} {self.shop.settings.pipeline}", line, code
        )

    def sql(self, statement: str) -> None:
        """Run a statement of a writer that is not ours."""
        line = ["-c", STATEMENT, str(self.shop.config), statement]
        self._on_both_workers(f"tideline statement {self.shop.settings.pipeline}", line, 0)

    def expect_no_secret(self) -> None:
        """Neither on a command line so far, nor on a page, nor in a log of the cluster."""
        assert self.lines.having(EXECUTOR) and self.lines.telling == set()
        for text in (*pages(self.cluster), *logs(self.cluster)):
            assert not [one for one in self.secrets if one in text]

    def _on_both_workers(self, name: str, line: list[str], code: int) -> str:
        done = subprocess.run(
            [sys.executable, *line],
            cwd=ROOT,
            env={
                **os.environ,
                "JAVA_HOME": str(java_home()),
                "SPARK_CONF_DIR": str(self.events.configuration),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == code, done.stdout
        [ran] = self.events.ended()
        known = {one["id"]: one["name"] for one in self.cluster.master.state()["completedapps"]}
        assert (known.get(ran.id), ran.name) == (name, name)
        print(name, dict(ran.tasks))
        assert set(ran.tasks) <= ran.executors and len(ran.executors) == 2, ran.tasks
        for secret in self.secrets:
            assert secret not in done.stdout and secret not in ran.text
        return done.stdout


@pytest.fixture
def commands(
    shop: Pipeline[Database], cluster: SparkCluster, s3: S3Server, tmp_path: Path
) -> Iterator[Commands]:
    secrets = [s3.secret_access_key, cluster.master.secret_file.read_text()]
    lines = CommandLines(secrets, [EXECUTOR])
    with lines.watched():
        yield Commands(shop, cluster, SparkEvents(tmp_path / "spark", BOTH_WORKERS), secrets, lines)


def test_rebuild_verification_and_repair(shop: Pipeline[Database], commands: Commands) -> None:
    worker = shop.start()
    shop.wait_state("the table is dumped", dumped)
    captured(shop, worker, "UPDATE orders SET note = 'changed' WHERE id % 3 = 0")
    commands.run("merge")
    assert equal(shop)

    assert "deletionVectors" in features(shop)
    with shop.config.open("a") as settings:
        settings.write(f'\n[tables."{ORDERS}"]\ndeletion_vectors = false\n')
    shown = commands.run("rebuild", ORDERS, "--mode", "current")
    assert f"{ORDERS} is rebuilt, as current" in shown
    assert "Delta's DROP FEATURE fails on a cluster" in shown
    assert 'merge.master = "local[2]" removes that' in shown
    assert "deletionVectors" in features(shop), "Delta can do it: do without the warning"
    assert equal(shop)

    commands.sql(
        f"UPDATE delta.`{target(shop)}` SET note = 'damaged' WHERE id = {DAMAGED}"  # noqa: S608
    )
    moved = "UPDATE orders SET id = -id WHERE id < 9"
    captured(shop, worker, "DELETE FROM orders WHERE id % 5 = 0", moved)
    assert f"{ORDERS} different {DAMAGED}: note" in commands.run("verify", ORDERS, code=1)
    assert not equal(shop), "a verification repairs nothing by itself"
    assert "1 differences; dumping 1 keys" in commands.run("verify", ORDERS, "--repair")
    assert equal(shop)
    worker.terminate()
    commands.expect_no_secret()


def test_maintenance(
    shop: Pipeline[Database], commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are written without their deleted rows, where Delta's own statement fails on every
    cluster; then they are put together."""
    worker = shop.start()
    shop.wait_state("the table is dumped", dumped)
    commands.run("merge")
    captured(shop, worker, "UPDATE orders SET note = 'changed' WHERE id % 3 = 0")
    commands.run("merge")
    worker.terminate()
    files = table_files(shop)
    shown = commands.run("maintain", ORDERS)
    assert "rewritten" in shown and "1 files with" in shown and "small files" not in shown
    purged = table_files(shop)
    assert (len(files - purged), len(purged - files)) == (1, 1)
    assert equal(shop)
    monkeypatch.setenv("TIDELINE_MAINTAIN__SMALL_FILES_MIN", "2")
    assert " small files" in commands.run("maintain", ORDERS)
    assert len(table_files(shop)) == 1 and not table_files(shop) & (files | purged)
    assert equal(shop)
    commands.expect_no_secret()


def dumped(state: OpenState) -> bool:
    """Whether the first dump of the table has ended."""
    table = state.tables.get(ORDERS)
    return table is not None and table.complete_seq is not None and not state.requests


def captured(shop: Pipeline[Database], worker: WorkerProcess, *statements: str) -> None:
    """Change the source; return once the chain has all of it."""
    shop.database.run(*statements)
    shop.catch_up(worker)


def equal(shop: Pipeline[Database]) -> bool:
    """Whether the warehouse has what the source has."""
    return compare(shop.database.dsn, shop.settings.warehouse_storage, [ORDERS]).equal


def target(shop: Pipeline[Database]) -> str:
    """The table's address."""
    return table_path(shop.settings.warehouse.url, parse_table(ORDERS))


def features(shop: Pipeline[Database]) -> set[str]:
    """What the table's readers have to know."""
    place = shop.settings.warehouse_storage
    return set(delta_table(target(shop), storage_options(place)).protocol().reader_features or ())


def table_files(shop: Pipeline[Database]) -> set[str]:
    """The files of the table's newest version."""
    place = shop.settings.warehouse_storage
    return set(delta_table(target(shop), storage_options(place)).file_uris())
