"""``tideline merge`` on a standalone cluster of two workers, whose processes die: every change is
in its table once, nothing secret is shown, and files that executors may not see are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psutil
import pytest

from devtools.services.ports import LOOPBACK, free_port
from devtools.services.s3 import S3Server
from devtools.services.spark_cluster import SparkCluster
from devtools.services.valkey import ValkeyServer
from tests.faults.every_mode import TABLES, EveryMode
from tests.fixtures.certificates import make_authority
from tests.fixtures.object_storage import NEEDS_S3, place_in
from tests.fixtures.parts import table_format
from tests.fixtures.settings import as_toml
from tests.fixtures.tls_front import TlsFront
from tests.support.cluster_traces import logs, pages
from tests.support.proxy import Proxy
from tideline.java import java_home
from tideline.planner import applied_state
from tideline.store.objects import open_store
from tideline_spark.shared_files import PREFIX

pytestmark = [
    pytest.mark.timeout(1_800),
    NEEDS_S3,
]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 600.0
PUBLISHED = "127.0.0.2"
"""An address of this machine that nothing but a proxy of a test listens on."""
_PAUSE_S = 0.02
NAMESPACE = ("unshare", "--mount", "--propagation", "private")
"""Stands before a command that mounts, which the other processes do not see."""
_SHORT = "spark.executor.defaultJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
_CONSOLE = "from tideline_console.app import main; main()"
_UNCHECKED = """
import contextlib, tideline_spark.merge
tideline_spark.merge.files_seen_by_all = lambda *given: contextlib.nullcontext()
"""


class Cluster(SparkCluster):
    """Whose commands run as a user's would, in processes of their own."""

    def command(
        self,
        tables: EveryMode,
        access: dict[str, Any],
        *words: str,
        lead: str = "",
        defaults: str = "",
        without: Sequence[str] = (),
        **merge: Any,
    ) -> Command:
        """Start ``tideline merge`` of what waits, with more ``words`` on its command line,
        ``defaults`` of its Spark, and ``without`` some of the cluster's settings."""
        settings = tables.history.settings
        values = {
            "pipeline": settings.pipeline,
            "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
            "store": {"url": settings.store.url, **access},
            "warehouse": {"url": settings.warehouse.url, **table_format(tables.place)},
            "merge": {
                **{name: value for name, value in self.settings.items() if name not in without},
                "driver_memory": "1g",
                "executor_memory": "512m",
                "executor_cores": 1,
                **merge,
            },
            "tables": {name: dict(keys) for name, keys in tables.settings.items()},
        }
        return Command(tables.root, values, words, lead, defaults)


class Command:
    """A ``tideline merge`` that runs. ``lead``: Python that it runs first; ``defaults``: more lines
    of its ``spark-defaults.conf``."""

    def __init__(
        self,
        folder: Path,
        values: dict[str, Any],
        words: Sequence[str] = (),
        lead: str = "",
        defaults: str = "",
    ) -> None:
        config = folder / "tideline.toml"
        config.write_text(as_toml(values))
        clients = folder / "client"
        clients.mkdir(exist_ok=True)
        (clients / "spark-defaults.conf").write_text(f"{_SHORT}{defaults}")
        self._log = folder / "merge.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"{lead}\n{_CONSOLE}", "merge", "--config", config, *words],
                cwd=ROOT,
                env={
                    **os.environ,
                    "JAVA_HOME": str(java_home()),
                    "SPARK_CONF_DIR": str(clients),
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def until(self, seen: Callable[[], Any], pause_s: float = _PAUSE_S) -> None:
        """Return once something is ``seen``, while it runs; look again after ``pause_s``."""
        end = time.monotonic() + PATIENCE_S
        while not seen():
            assert self.process.poll() is None, f"it ended first: {self.output}"
            assert time.monotonic() < end, self.output
            time.sleep(pause_s)

    def listens_on(self) -> set[str]:
        """The addresses on which its processes, Python and Java, accept connections."""
        driver = psutil.Process(self.process.pid)
        return {
            connection.laddr.ip.removeprefix("::ffff:")
            for one in (driver, *driver.children(recursive=True))
            for connection in one.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }

    def end(self) -> int:
        """Its exit code."""
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill the driver: Python and its Java."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def tables(s3: S3Server, tmp_path: Path) -> EveryMode:
    """A chain in S3, and four tables that are not there yet."""
    made = EveryMode(tmp_path, seed=11, place=place_in(s3))
    made.fill()
    made.more(16)
    return made


def committed(tables: EveryMode) -> bool:
    """Whether any table has a commit."""
    warehouse = tables.history.settings.warehouse_store()
    return any(key.endswith(".json") for key in open_store(warehouse).list(""))


def merging(tables: EveryMode) -> Callable[[], bool]:
    return lambda: committed(tables)


def keys_of(tables: EveryMode) -> dict[str, Any]:
    assert tables.place is not None
    return {
        name: value.get_secret_value() if hasattr(value, "get_secret_value") else value
        for name, value in tables.place.access().items()
        if value is not None
    }


def test_an_executor_dies_while_tables_in_s3_are_merged(
    cluster: Cluster, tables: EveryMode, s3: S3Server, tmp_path: Path
) -> None:
    """Executors reach S3 by the driver's keys and trust the authority that the settings name.
    Neither key nor the cluster's secret is on a command line or a page.

    The driver listens on one address and is reached at another, as in a container whose ports are
    published: two of them are enough, and it listens nowhere else.
    """
    authority = make_authority(tmp_path)
    ports = {name: free_port() for name in ("spark.driver.port", "spark.driver.blockManager.port")}
    published = [Proxy(port, address=PUBLISHED, port=port) for port in ports.values()]
    with ExitStack() as stack:
        front = stack.enter_context(TlsFront(tmp_path, authority, s3.port))
        for one in published:
            stack.enter_context(one)
        access = {
            **keys_of(tables),
            "endpoint": f"https://127.0.0.1:{front.port}",
            "ca_file": str(authority.file),
        }
        command = cluster.command(
            tables,
            access,
            defaults="".join(f"{name} {port}\n" for name, port in ports.items()),
            driver_host=PUBLISHED,
            driver_bind_address=LOOPBACK,
        )
        command.until(merging(tables))
        assert command.listens_on() == {LOOPBACK}
        there = cluster.executors()
        assert len(there) == 2
        shown = "\n".join([*command_lines(), *pages(cluster)])
        assert "CoarseGrainedExecutorBackend" in shown and "Running Applications" in shown
        there[0].kill()
        assert command.end() == 0, command.output
        shown += "\n".join(logs(cluster))
    assert front.encrypted and all(one.accepted for one in published)
    for secret in (s3.secret_access_key, cluster.master.secret_file.read_text()):
        assert secret not in shown
        assert secret not in command.output
    tables.check()


@pytest.mark.long
def test_a_worker_dies(cluster: Cluster, tables: EveryMode) -> None:
    """With its executor, as a machine does: the other one merges the rest."""
    dying, other = cluster.workers
    command = cluster.command(tables, keys_of(tables))
    try:
        command.until(merging(tables))
        command.until(lambda: dying.executors() and other.executors())
        dying.kill()
        assert command.end() == 0, command.output
    finally:
        dying.start()
    tables.check()


@pytest.mark.long
def test_a_driver_dies(cluster: Cluster, tables: EveryMode) -> None:
    command = cluster.command(tables, keys_of(tables))
    command.until(merging(tables))
    command.kill()
    tables.more(16)
    again = cluster.command(tables, keys_of(tables))
    assert again.end() == 0, again.output
    tables.check()


@pytest.mark.long
def test_a_merger_keeps_its_executors(
    cluster: Cluster, tables: EveryMode, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It merges what comes with the executors that it has, and goes on with others where one
    dies."""

    def merged() -> bool:
        found = applied_state(tables.history.settings).tables
        return len(found) == len(TABLES) and all(one.up_to_date for one in found.values())

    monkeypatch.setenv("TIDELINE_CONTROL__URL", valkey.url())
    merger = cluster.command(tables, keys_of(tables), "--follow")
    try:
        merger.until(merged, 1.0)
        tables.check()
        first = {one.pid for one in cluster.executors()}
        tables.more(16)
        merger.until(merged, 1.0)
        tables.check()
        assert {one.pid for one in cluster.executors()} == first
        cluster.executors()[0].kill()
        tables.more(16)
        merger.until(merged, 1.0)
        tables.check()
        merger.process.terminate()
        assert merger.end() == 0, merger.output
    finally:
        merger.process.kill()
    assert "is replaced" not in merger.output, merger.output


@pytest.mark.long
def test_a_master_dies(cluster: Cluster, tables: EveryMode) -> None:
    """The merge that runs keeps its executors; one without a master says so; with it back, the next
    one goes on."""
    command = cluster.command(tables, keys_of(tables))
    command.until(merging(tables))
    cluster.master.kill()
    assert command.end() == 0, command.output
    tables.check()
    tables.more(16)
    without = cluster.command(tables, keys_of(tables))
    assert without.end() != 0
    assert "Spark's master does not answer" in without.output
    cluster.master.start()
    again = cluster.command(tables, keys_of(tables))
    assert again.end() == 0, again.output
    tables.check()


@pytest.mark.long
@pytest.mark.parametrize(
    ("secret", "hint"),
    [
        ("canary-of-another-cluster", "its secret may be another than"),
        (None, "it may want a secret, and merge.authenticate_secret_file is not set"),
    ],
    ids=["another", "none"],
)
def test_a_wrong_secret_is_refused_by_name(
    cluster: Cluster, tables: EveryMode, tmp_path: Path, secret: str | None, hint: str
) -> None:
    access, key = keys_of(tables), "authenticate_secret_file"
    if secret is None:
        command = cluster.command(tables, access, without=[key])
    else:
        other = tmp_path / "other-secret"
        other.touch(mode=0o600)
        other.write_text(secret)
        command = cluster.command(tables, access, **{key: str(other)})
    assert command.end() != 0
    assert "did not accept this application" in command.output and hint in command.output
    assert "canary" not in command.output
    assert not committed(tables)


@pytest.mark.long
def test_a_cluster_without_room_for_an_executor_is_named(
    cluster: Cluster, tables: EveryMode
) -> None:
    """It would be waited for without end."""
    access = keys_of(tables)
    command = cluster.command(tables, access, executor_memory="900g", executors_wait_s=5)
    assert command.end() != 0
    assert "has joined in 5 s" in command.output
    assert not committed(tables)


def hiding(folder: Path) -> tuple[str, ...]:
    """The beginning of the command of a worker for which ``folder`` is another, empty one."""
    if subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not give a process mounts of its own")
    return (*NAMESPACE, "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', str(folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def apart(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers, over whose one the ``folder`` is another, empty one: another machine's."""
    with Cluster(tmp_path_factory.mktemp("apart"), launchers=[hiding(folder)]) as started:
        yield started


@pytest.mark.long
class TestFiles:
    """Store and warehouse in a folder that one of two workers does not see."""

    @pytest.fixture
    def in_files(self, folder: Path) -> EveryMode:
        made = EveryMode(Path(tempfile.mkdtemp(dir=folder)), seed=12)
        made.fill()
        return made

    def test_they_are_refused_unless_the_settings_say_that_they_are_shared(
        self, apart: Cluster, in_files: EveryMode
    ) -> None:
        command = apart.command(in_files, {})
        assert command.end() != 0
        assert "merge.shared_files = true" in command.output
        assert written(in_files) == []

    def test_they_are_refused_where_an_executor_does_not_see_them(
        self, apart: Cluster, in_files: EveryMode
    ) -> None:
        command = apart.command(in_files, {}, shared_files=True)
        assert command.end() != 0
        assert "do not see the same" in command.output
        assert written(in_files) == []

    def test_unchecked_they_would_be_lost(self, apart: Cluster, in_files: EveryMode) -> None:
        """Commits name files that are on no disk but the other machine's."""
        command = apart.command(in_files, {}, lead=_UNCHECKED, shared_files=True)
        command.end()
        warehouse = in_files.root / "warehouse"
        named = {
            path.parent.parent / unquote(json.loads(line)["add"]["path"])
            for path in warehouse.rglob("_delta_log/*.json")
            for line in path.read_text().splitlines()
            if "add" in json.loads(line)
        }
        assert [path for path in named if not path.exists()], command.output


@pytest.mark.long
def test_shared_files_are_merged(cluster: Cluster, tmp_path: Path) -> None:
    made = EveryMode(tmp_path, seed=13)
    made.fill()
    command = cluster.command(made, {}, shared_files=True)
    assert command.end() == 0, command.output
    made.check()
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(PREFIX)]


def written(tables: EveryMode) -> list[Path]:
    """All files in the warehouse."""
    return [path for path in (tables.root / "warehouse").rglob("*") if path.is_file()]


def command_lines() -> Iterator[str]:
    """Those of every process of this machine."""
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            yield " ".join(one.cmdline())
