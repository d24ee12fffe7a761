"""``make cluster``, ``make s3`` and ``make bigquery``: what they print is what commands take, and
nothing of them outlives Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from devtools.services.ports import LOOPBACK, free_port
from devtools.services.process import PID_SUFFIX
from devtools.standing import toml_lines
from tideline.settings import Settings, Store, Warehouse, make_settings
from tideline.store.objects import open_store
from tideline.warehouse.bigquery.client import BigQueryPlace, open_client

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0
READY = "Ctrl-C ends it"
pytestmark = pytest.mark.timeout(900)


class Started:
    """``python -m devtools`` with a command, in a folder of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "devtools", *words, "--folder", str(folder)],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def until_ready(self) -> str:
        """What it prints until then."""
        assert self.process.stdout is not None
        shown = ""
        for line in self.process.stdout:
            shown += line
            if READY in line:
                return shown
        raise AssertionError(f"it ended first: {shown}")

    def until_there_is(self, name: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not (self.folder / name).exists():
            assert self.process.poll() is None and time.monotonic() < end
            time.sleep(0.01)

    def interrupt(self) -> tuple[int, str, list[psutil.Process]]:
        """Its exit code once it has ended, what it still printed, and those of its processes that
        are left."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        assert family
        self.process.send_signal(signal.SIGINT)
        shown, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, shown, [one for one in family if runs(one)]


def runs(process: psutil.Process) -> bool:
    """Whether it does anything: one that has ended may wait for its parent, here the machine's
    first process, to ask for its status."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def started(folder: Path, *words: str) -> Iterator[Started]:
    cluster = Started(folder, *words)
    try:
        yield cluster
    finally:
        if cluster.process.poll() is None:
            cluster.process.send_signal(signal.SIGINT)
        cluster.process.communicate(timeout=PATIENCE_S)


CLUSTER = ("cluster", "--workers", "1")


def settings(merge: dict[str, object]) -> Settings:
    return make_settings(
        {
            "pipeline": "p",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": "file:///store"},
            "warehouse": {"url": "file:///warehouse"},
            "merge": merge,
        }
    )


def test_it_prints_settings_that_commands_take_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with started(tmp_path / "one", *CLUSTER) as cluster:
        shown = cluster.until_ready()
        [lines] = [one for one in shown.split("\n\n") if one.startswith("master = ")]
        merge = settings(tomllib.loads(lines)).merge
        assert merge.shared_files and merge.driver_host == LOOPBACK
        assert merge.secret() == (cluster.folder / "secret").read_text()
        port = merge.master.rpartition(":")[2]
        # Beside it, in its folder and on its port.
        with started(cluster.folder, *CLUSTER) as second:
            text, _ = second.process.communicate(timeout=PATIENCE_S)
        assert second.process.returncode != 0
        assert f"is in use by the process {cluster.process.pid}" in text
        with started(tmp_path / "two", *CLUSTER, "--port", port) as second:
            text, _ = second.process.communicate(timeout=PATIENCE_S)
        assert second.process.returncode != 0
        assert f"port {port} on {LOOPBACK} is taken" in text
        assert "Traceback" not in text
        code, text, left = cluster.interrupt()
    assert code == 0 and "ending" in text
    assert left == []
    assert list(cluster.folder.glob(f"*{PID_SUFFIX}")) == []


def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    with started(tmp_path, *CLUSTER) as cluster:
        cluster.until_there_is(f"spark-master{PID_SUFFIX}")
        code, text, left = cluster.interrupt()
    assert code == 0 and READY not in text
    assert left == []


def test_the_s3_server_keeps_its_data_and_its_key(tmp_path: Path) -> None:
    words = ("s3", "--bucket", "trial", "--port", str(free_port()))
    printed = []
    for _ in range(2):
        with started(tmp_path, *words) as server:
            shown = server.until_ready()
            sections = tomllib.loads(shown[shown.index("[store]") : shown.index("\ns3: Ctrl-C")])
            printed.append(sections)
            store = open_store(Store(**sections["store"]))
            assert store.get("1") == (None if len(printed) == 1 else b"one")
            store.put("1", b"one")
            code, text, left = server.interrupt()
        assert code == 0 and "ending" in text
        assert left == []
    assert printed[0] == printed[1]
    assert printed[0]["warehouse"]["url"].startswith("s3://trial/")
    secret = Path(printed[0]["store"]["secret_access_key_file"])
    assert secret.stat().st_mode & 0o077 == 0 and secret.read_text() not in shown


def test_the_emulator_of_bigquery_is_reached_by_the_settings_that_it_prints(
    tmp_path: Path,
) -> None:
    words = ("bigquery", "--port", str(free_port()))
    with started(tmp_path, *words) as server:
        shown = server.until_ready()
        lines = shown[shown.index("format = ") : shown.index("\nbigquery: Ctrl-C")]
        place = Warehouse(**tomllib.loads(f"url = 'file:///w'\n{lines}"))
        client = open_client(BigQueryPlace.of(place))
        assert [tuple(row) for row in client.query("SELECT 1 + 1").result()] == [(2,)]
        with started(tmp_path / "two", *words) as second:
            text, _ = second.process.communicate(timeout=PATIENCE_S)
        assert second.process.returncode != 0 and "is taken" in text and "Traceback" not in text
        code, text, left = server.interrupt()
    assert code == 0 and "ending" in text
    assert left == []


def test_what_is_printed_is_toml_whatever_the_folder_is_called() -> None:
    odd = 'a "quoted" \\ folder\u00e9'
    assert tomllib.loads("\n".join(toml_lines({"authenticate_secret_file": odd}))) == {
        "authenticate_secret_file": odd
    }
