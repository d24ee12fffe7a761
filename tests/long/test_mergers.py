# ruff: noqa: S608  statements are made of numbers and names of ours
"""Mergers with a real worker, PostgreSQL, Valkey and Spark, killed and paused where it hurts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from devtools.demo.compare import compare
from tests.fixtures.capture import Pipeline, PipelineFactory, poll
from tests.fixtures.services import Database
from tideline.control.merger import MergerClient, MergerStatus
from tideline.planner import applied_state
from tideline_console import rebuild
from tideline_console.arguments import RebuildOptions

ROOT = Path(__file__).resolve().parents[2]
SESSION = "tests.support.merger_session"
TABLES = ["public.a", "public.b", "public.c"]
PATIENCE_S = 600.0


class Merger:
    """One merger with real sessions; ``armed`` is the file that ends or stops them."""

    def __init__(self, config: Path, folder: Path) -> None:
        folder.mkdir()
        self.armed = folder / "armed"
        self.log = folder / "log"
        with self.log.open("wb") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.support.merger", str(config), SESSION],
                cwd=ROOT,
                env={**os.environ, "MERGER_ARMED": str(self.armed)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def arm(self, number: signal.Signals, point: str) -> None:
        """Have the session send itself the signal at the point; return once it did."""
        whole = self.armed.with_suffix(".part")
        whole.write_text(f"{number.name} {point}")
        whole.rename(self.armed)
        poll(f"{number.name} at {point}", lambda: not self.armed.exists(), timeout_s=PATIENCE_S)

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def sessions(self) -> list[int]:
        """The processes that hold its sessions."""
        children = Path(f"/proc/{self._child.pid}/task/{self._child.pid}/children").read_text()
        return [int(text) for text in children.split()]

    def stop(self) -> None:
        begun = len(self.output())
        self.signal(signal.SIGTERM)
        assert self._child.wait(120) == 0, self.output()
        assert "[error" not in self.output()[begun:]

    def end(self) -> None:
        if self._child.poll() is None:
            for pid in self.sessions():
                os.killpg(pid, signal.SIGKILL)
            self._child.kill()
            self._child.wait()

    def output(self) -> str:
        return self.log.read_text()


@pytest.fixture
def pipeline(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    for table in TABLES:
        database.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, v text)")
    return pipeline_of(database)


@pytest.fixture
def begin(pipeline: Pipeline[Database], tmp_path: Path) -> Iterator[Callable[[str], Merger]]:
    made: list[Merger] = []

    def one(name: str) -> Merger:
        made.append(Merger(pipeline.config, tmp_path / name))
        return made[-1]

    yield one
    for merger in made:
        merger.end()


def change(pipeline: Pipeline[Database], number: int) -> None:
    for table in TABLES:
        pipeline.database.run(
            f"INSERT INTO {table} SELECT g, 'new' FROM generate_series({number}, {number + 9}) g",
            f"UPDATE {table} SET v = v || '{number}' WHERE id % 3 = 0",
        )


def wait_equal(pipeline: Pipeline[Database]) -> None:
    """Return once all that is committed by now is in the warehouse, and equal."""
    poll(
        "all is merged",
        lambda: (
            len(found := applied_state(pipeline.settings).tables) == len(TABLES)
            and all(one.up_to_date for one in found.values())
            and compare(pipeline.database.dsn, pipeline.settings.warehouse, TABLES).equal
        ),
        timeout_s=PATIENCE_S,
        pause_s=0.5,
    )


@pytest.mark.timeout(3000)
def test_a_merger_lives_through_deaths(
    pipeline: Pipeline[Database], begin: Callable[[str], Merger]
) -> None:
    """Of its session before and after a commit, of Java alone, and of its supervisor."""
    change(pipeline, 0)
    worker = pipeline.start()
    merger = begin("a")
    wait_equal(pipeline)
    for number, point in enumerate(("before-commit", "after-commit"), 1):
        change(pipeline, number * 10)
        merger.arm(signal.SIGKILL, point)
        wait_equal(pipeline)
    assert len(re.findall("its process ended with -9", merger.output())) == 2
    [session] = merger.sessions()
    [java] = Path(f"/proc/{session}/task/{session}/children").read_text().split()[:1]
    os.kill(int(java), signal.SIGKILL)
    change(pipeline, 40)
    wait_equal(pipeline)
    assert "its process ended with 70" in merger.output()
    merger.signal(signal.SIGKILL)
    change(pipeline, 50)
    second = begin("b")
    wait_equal(pipeline)
    second.stop()
    worker.terminate()


@pytest.mark.timeout(3000)
def test_a_merger_that_slept_in_a_merge_applies_nothing_twice(
    pipeline: Pipeline[Database], begin: Callable[[str], Merger]
) -> None:
    """Its session stops just before a commit, and goes on when another merger has made it."""
    change(pipeline, 0)
    worker = pipeline.start()
    first = begin("a")
    wait_equal(pipeline)
    change(pipeline, 10)
    first.arm(signal.SIGSTOP, "before-commit")
    first.signal(signal.SIGSTOP)
    [session] = first.sessions()
    second = begin("b")
    wait_equal(pipeline)
    os.killpg(session, signal.SIGCONT)
    change(pipeline, 20)
    wait_equal(pipeline)
    first.signal(signal.SIGCONT)
    poll(
        "the first one notices",
        lambda: "another merger has taken over" in first.output(),
        timeout_s=PATIENCE_S,
    )
    change(pipeline, 30)
    wait_equal(pipeline)
    for merger in (second, first):
        merger.stop()
    worker.terminate()


@pytest.mark.timeout(3000)
def test_a_table_that_changes_all_the_time_is_rebuilt(
    pipeline: Pipeline[Database],
    begin: Callable[[str], Merger],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its swap needs it to stand still, while the merger merges it every few seconds."""
    change(pipeline, 0)
    worker = pipeline.start()
    merger = begin("a")
    wait_equal(pipeline)
    monkeypatch.setattr(rebuild, "STEPS_MAX", 12)
    ended = threading.Event()

    def go_on() -> None:
        number = 100
        while not ended.wait(0.3):
            change(pipeline, number := number + 10)

    changes = threading.Thread(target=go_on)
    changes.start()
    try:
        code = rebuild.run(pipeline.settings, "public.a", RebuildOptions())
    finally:
        ended.set()
        changes.join()
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "comparing and swapping" in printed
    assert "left to rebuilds" in merger.output()
    wait_equal(pipeline)
    merger.stop()
    worker.terminate()


@pytest.mark.timeout(600)
def test_status_shows_it(pipeline: Pipeline[Database], begin: Callable[[str], Merger]) -> None:
    merger = begin("a")
    settings = pipeline.settings

    def status() -> MergerStatus | None:
        with closing(MergerClient(settings.control, settings.pipeline)) as client:
            return client.status()

    poll("it merges", lambda: (s := status()) is not None and s.state == "merging", timeout_s=300)
    found = status()
    assert found is not None and found.memory_bytes > 200 << 20
    merger.stop()
    assert status() is None
