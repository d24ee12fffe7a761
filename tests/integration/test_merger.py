"""The supervisor of a merger, with processes that stand for Spark sessions, and a real Valkey."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import poll
from tests.fixtures.settings import as_toml
from tideline.control.merger import MergerClient, MergerStatus
from tideline.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
STUB = "tests.support.stub_session"


class Merger:
    """One merger; ``folder`` tells its session processes what to do."""

    def __init__(self, config: Path, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.log = folder / "log"
        with self.log.open("wb") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.support.merger", str(config), STUB],
                cwd=ROOT,
                env={**os.environ, "STUB_SESSION": str(folder)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def wait(self) -> int:
        return self._child.wait(60)

    def end(self) -> None:
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGCONT)
            self._child.kill()
            self._child.wait()

    def sessions(self) -> list[int]:
        """The process ids of its sessions, in the order in which they began."""
        path = self.folder / "begun"
        return [int(text) for text in path.read_text().split()] if path.exists() else []

    def wait_sessions(self, count: int) -> int:
        """The process id of its ``count``-th session, once it has begun."""
        poll(f"session {count} begins", lambda: len(self.sessions()) >= count)
        return self.sessions()[count - 1]

    def given(self) -> list[str]:
        path = self.folder / "given"
        return path.read_text().split() if path.exists() else []

    def tell(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    def output(self) -> str:
        return self.log.read_text()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "Z"


@pytest.fixture
def config(tmp_path: Path, valkey: ValkeyServer) -> Path:
    path = tmp_path / "tideline.toml"
    path.write_text(
        as_toml(
            {
                "pipeline": "shop",
                "source": {"url": "postgres://nobody@127.0.0.1:1/shop"},
                "store": {"url": (tmp_path / "store").as_uri()},
                "control": {"url": valkey.url()},
                "warehouse": {"url": (tmp_path / "warehouse").as_uri()},
                "merge": {"follow_memory_bytes_max": 1000},
            }
        )
    )
    return path


@pytest.fixture
def client(config: Path) -> Iterator[MergerClient]:
    settings = load_settings(config)
    with closing(MergerClient(settings.control, settings.pipeline)) as made:
        yield made


@pytest.fixture
def begin(config: Path, tmp_path: Path) -> Iterator[Callable[[str], Merger]]:
    made: list[Merger] = []

    def one(name: str) -> Merger:
        made.append(Merger(config, tmp_path / name))
        return made[-1]

    yield one
    for merger in made:
        merger.end()


def merging(client: MergerClient) -> MergerStatus | None:
    status = client.status()
    return status if status is not None and status.state == "merging" else None


@pytest.mark.timeout(300)
def test_a_sick_session_is_replaced_and_its_plans_go_on(
    begin: Callable[[str], Merger], client: MergerClient
) -> None:
    merger = begin("a")
    first = merger.wait_sessions(1)
    poll("it merges", lambda: merging(client) is not None)
    client.ask("asked")
    poll("the plan is handed on", lambda: merger.given() == ["asked"])
    merger.tell("plans", "own")
    poll("its own is on record", lambda: "own" in queued(client))
    os.kill(first, signal.SIGKILL)
    second = merger.wait_sessions(2)
    poll("both are handed on", lambda: merger.given()[1:] in (["asked"], ["asked", "own"]))
    merger.tell("ended", "asked own")
    merger.tell("plans", "")
    poll("nothing is open", lambda: queued(client) == set())
    merger.tell("memory", "1001")
    third = merger.wait_sessions(3)
    merger.tell("memory", "0")
    assert gone(first) and gone(second) and not gone(third)
    assert "it takes" in merger.output() and "its process ended with -9" in merger.output()
    poll("the status has it", lambda: (s := merging(client)) is not None and s.replaced >= 2)


@pytest.mark.timeout(300)
def test_a_signal_ends_it_in_order(begin: Callable[[str], Merger], client: MergerClient) -> None:
    merger = begin("a")
    session = merger.wait_sessions(1)
    poll("it merges", lambda: merging(client) is not None)
    merger.signal(signal.SIGTERM)
    assert merger.wait() == 0
    assert (merger.folder / "stopped").exists() and gone(session)
    assert client.status() is None


@pytest.mark.timeout(300)
def test_a_session_does_not_outlive_its_supervisor(begin: Callable[[str], Merger]) -> None:
    merger = begin("a")
    session = merger.wait_sessions(1)
    merger.signal(signal.SIGKILL)
    poll("the session ends", lambda: gone(session))


@pytest.mark.timeout(300)
def test_the_second_takes_over_and_the_first_that_slept_ends_its_session(
    begin: Callable[[str], Merger], client: MergerClient
) -> None:
    first = begin("a")
    session = first.wait_sessions(1)
    poll("it merges", lambda: merging(client) is not None)
    second = begin("b")
    poll("the second waits", lambda: "waits to take over" in second.output())
    assert second.sessions() == []
    first.signal(signal.SIGSTOP)
    second.wait_sessions(1)
    assert not gone(session)
    first.signal(signal.SIGCONT)
    poll("the first one's session ends", lambda: gone(session))
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    first.wait_sessions(2)


def queued(client: MergerClient) -> set[str]:
    found = client._redis.zrange("tideline:shop:merges", 0, -1)
    return {raw.decode() for raw in found}  # type: ignore[union-attr]
