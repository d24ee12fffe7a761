"""What the demo says and when it ends, without any server."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from typer.testing import CliRunner

from devtools.__main__ import app
from devtools.demo import app as demo
from devtools.demo.app import stays_up
from devtools.demo.compare import ComparedTable, Comparison, RowDifference
from devtools.demo.databases.choose import of_kind
from devtools.demo.scenes import CATCH_UP_S, Scenes
from devtools.demo.screen import Screen
from devtools.demo.stage import DemoStage
from devtools.demo.traffic import TRANSACTIONS_PER_S, Report
from devtools.services.process import Child
from tideline.contract.errors import Misconfigured, Unavailable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_replaced_in_a_terminal() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.scene("dump")
    screen.progress("1 row")
    screen.progress("2 rows")
    screen.say("done")
    lines = out.getvalue().split("\r\x1b[K")
    assert lines[1].strip() == "… 1 row" and lines[2].strip() == "… 2 rows"
    assert lines[3].strip() == "done"


def test_progress_in_a_log_is_a_line_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(step=0.1)
    monkeypatch.setattr("devtools.demo.screen.time.monotonic", lambda: next(clock))
    out = io.StringIO()
    screen = Screen(out)
    for number in range(60):
        screen.progress(f"{number} rows")
    assert out.getvalue().count("rows") == 2
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize(
    ("wish", "terminal", "expected"),
    [(None, True, True), ("0", True, True), ("1", True, False), (None, False, False)],
)
def test_it_stays_up_only_for_somebody_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, wish: str | None, terminal: bool, expected: bool
) -> None:
    if wish is None:
        monkeypatch.delenv("DEMO_EXIT", raising=False)
    else:
        monkeypatch.setenv("DEMO_EXIT", wish)
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdin", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    assert stays_up() is expected


class PlayedStage:
    """A stage on which all has been played."""

    def __init__(self, folder: Path, _database: object, storage: str, target: str) -> None:
        self.folder, self.config = folder, folder / "tideline.toml"

        print(f"on {storage}")
        print(f"as {target}")

    def clear(self) -> list[str]:
        return []

    def airflow(self) -> SimpleNamespace:
        return SimpleNamespace(url="http://127.0.0.1:1", password="the-login")

    def stop(self) -> None:
        print("stopped")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The demo without its servers and scenes, and without a terminal."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setenv("DEMO_FOLDER", str(tmp_path))
    monkeypatch.setattr(demo, "DemoStage", PlayedStage)
    monkeypatch.setattr(demo, "java_home", lambda: None)
    monkeypatch.setattr(demo, "job_jars", list)
    monkeypatch.setattr(demo, "every_jar", list)
    monkeypatch.setattr(demo, "_perform", lambda stage, screen: 0)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("stay", [False, True])
def test_without_a_terminal_it_says_how_to_keep_it_running(
    played: None, stay: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the login either way."""
    waited: list[int] = []

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(os.getpid())
            raise KeyboardInterrupt

    monkeypatch.setattr("devtools.demo.app.threading.Event", Interrupted)
    assert demo.run(stay=stay) == 0
    printed = capsys.readouterr().out
    assert "Airflow: http://127.0.0.1:1  user admin  password the-login" in printed
    assert ("--stay" in printed, f"kill {os.getpid()}" in printed) == (not stay, stay)
    assert bool(waited) == stay
    assert printed.endswith("stopped\n"), "whatever was asked for, nothing is left behind"


@pytest.mark.parametrize("words", [[], ["--stay"]])
def test_stay_is_an_option_of_the_command_and_of_make(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    asked: list[bool] = []

    def run(source: str, storage: str, target: str, *, stay: bool) -> int:
        asked.append(stay)
        return 0

    monkeypatch.setattr(demo, "run", run)
    assert CliRunner().invoke(app, ["demo", *words]).exit_code == 0
    assert asked == [bool(words)]
    root = Path(__file__).resolve().parents[4]
    command = ["make", "-n", "-o", "setup", "demo", *(["STAY=1"] if words else [])]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert ("--stay" in done.stdout) == bool(words)


@pytest.mark.parametrize("storage", ["s3", "files"])
def test_it_plays_on_s3_or_on_files(
    played: None, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run(storage=storage) == 0
    printed = capsys.readouterr().out
    assert f"on {storage}\n" in printed
    assert ("an S3 server, Airflow" in printed) == (storage == "s3")


def test_another_storage_is_refused_before_anything_starts(
    played: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Misconfigured, match=r"no storage 'tape'.*STORAGE is one of s3, files"):
        demo.run(storage="tape")
    assert "the stage" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"), [([], "s3"), (["--storage", "files"], "files")], ids=["s3", "files"]
)
def test_storage_is_an_option_of_the_command_and_of_make(
    monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    asked: list[str] = []

    def run(source: str, storage: str, target: str, *, stay: bool) -> int:
        asked.append(storage)
        return 0

    monkeypatch.setattr(demo, "run", run)
    assert CliRunner().invoke(app, ["demo", *words]).exit_code == 0
    assert asked == [expected]
    root = Path(__file__).resolve().parents[4]
    command = ["make", "-n", "-o", "setup", "demo", *(["STORAGE=files"] if words else [])]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert ("--storage files" in done.stdout) == bool(words)


def test_the_verdict_names_tables_and_rows_or_the_differences() -> None:
    equal = ComparedTable("public.orders", 7, 0, ())
    assert Comparison((equal,)).lines() == ["demo: ok, 1 tables, 7 rows equal"]
    first = RowDifference("public.items", "has another value", "12", "total")
    wrong = ComparedTable("public.items", 6, 3, (first,))
    result = Comparison((equal, wrong))
    assert not result.equal
    assert result.lines() == [
        "demo: FAILED, 3 differences in 1 tables",
        "  public.items row 12 column total: has another value",
        "  public.items: 2 more",
    ]


def test_the_comparison_shares_nothing_with_what_it_judges() -> None:
    script = (
        "import sys, devtools.demo.compare;"
        "print({name.partition('.')[0] for name in sys.modules}"
        " & {'tideline_capture', 'tideline_spark'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "set()", done.stdout + done.stderr


class EmptyStage:
    """A stage on which only the traffic plays: it ``lacks`` some of its transactions, fewer each
    time that someone looks."""

    def __init__(self, *lacks: float) -> None:
        self.database = of_kind("postgres")
        self.airflow_is_up = False
        self.lacks = list(lacks)

    def traffic_report(self) -> Report:
        lacking = self.lacks.pop(0)
        done = int(TRANSACTIONS_PER_S * 100 * (1 - lacking))
        return Report(100.0, done, 0, 0, 0, 0, 0, 0, 0, {}, False)

    def wait(self, ready: Any, **_: Any) -> None:
        while not ready():
            pass


def test_a_valkey_that_is_too_busy_to_answer_ends_no_demo() -> None:
    def busy() -> None:
        raise Unavailable("redis did not answer in time")

    out = io.StringIO()
    stage: Any = EmptyStage(0.0)
    scenes = Scenes(stage, Screen(out))
    vars(scenes).update(
        _control_client=SimpleNamespace(workers=busy),
        _chain=SimpleNamespace(tail=lambda hint: None),
    )
    assert not scenes._initial_dump_is_done()
    assert "0 of 9 tables, 0 rows" in out.getvalue()


def test_the_traffic_may_catch_up_before_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    stage: Any = EmptyStage(0.2, 0.1, 0.01, 0.0)
    Scenes(stage, Screen(io.StringIO()))._catch_up()
    assert stage.lacks == [0.0]
    clock = count(step=CATCH_UP_S / 3)
    monkeypatch.setattr("devtools.demo.scenes.time.monotonic", lambda: next(clock))
    slow: Any = EmptyStage(*[0.2] * 20)
    Scenes(slow, Screen(io.StringIO()))._catch_up()
    assert slow.lacks, "it goes on without it"


@pytest.mark.parametrize("trouble", ["interrupted", "valkey"])
def test_all_is_ended_whatever_becomes_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Ctrl-C can come right before the worker is started; a server can refuse to end."""
    stage = DemoStage(tmp_path, of_kind("postgres"))
    ended: list[str] = []

    def end_valkey() -> None:
        ended.append("valkey")
        if trouble == "valkey":
            raise Unavailable("it does not end")

    monkeypatch.setattr(stage.valkey, "stop", end_valkey)
    monkeypatch.setattr(stage.source, "remove", lambda: ended.append("source"))
    monkeypatch.setattr(stage.metadata, "remove", lambda: ended.append("metadata"))

    def interrupt(_: Child) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Child, "start", interrupt)
        stage.start_worker()
    with nullcontext() if trouble == "interrupted" else pytest.raises(Unavailable):
        stage.stop()
    assert ended == ["valkey", "source", "metadata"]


@pytest.mark.parametrize("target", ["delta", "iceberg"])
def test_it_plays_with_tables_of_either_format(
    played: None, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run(target=target) == 0
    printed = capsys.readouterr().out
    assert f"as {target}\n" in printed
    assert f"Spark with {target.title()}" in printed


def test_another_target_is_refused_before_anything_starts(played: None) -> None:
    with pytest.raises(Misconfigured, match=r"no target 'hudi'.*TARGET is one of delta, iceberg"):
        demo.run(target="hudi")


def test_the_target_is_an_option_of_make() -> None:
    root = Path(__file__).resolve().parents[4]
    command = ["make", "-n", "-o", "setup", "demo", "TARGET=iceberg"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert "--target iceberg" in done.stdout


def test_the_iceberg_demo_has_a_catalog_of_its_own(tmp_path: Path) -> None:
    stage = DemoStage(tmp_path, of_kind("postgres"), "files", "iceberg")
    stage._write_settings("postgresql://u@h/d")
    assert stage.settings.formats == {"iceberg"}
    assert stage.settings.warehouse.iceberg.file == tmp_path / "catalog.db"


@pytest.mark.parametrize("storage", ["s3", "files"])
def test_where_the_demo_keeps_its_tables(tmp_path: Path, storage: Literal["s3", "files"]) -> None:
    """In S3 the warehouse is reached as the store is: the keys are in the settings once."""
    stage = DemoStage(tmp_path, of_kind("postgres"), storage)
    stage._write_settings("postgresql://u@h/d")
    settings = stage.settings
    assert (stage.s3 is not None) == (storage == "s3")
    if stage.s3 is None:
        assert settings.store.url == (tmp_path / "store").as_uri()
        assert settings.warehouse.url == (tmp_path / "warehouse").as_uri()
        return
    assert (settings.store.url, settings.warehouse.url) == (
        "s3://tideline/store",
        "s3://tideline/warehouse",
    )
    assert not settings.warehouse.has_access
    place = settings.warehouse_storage
    assert (place.endpoint, place.secret()) == (stage.s3.endpoint, stage.s3.secret_access_key)
    [file] = list(tmp_path.rglob("*.toml"))
    assert file.stat().st_mode & 0o077 == 0, "its keys are nobody else's"


def test_the_demo_is_in_s3_unless_told_otherwise(tmp_path: Path) -> None:
    assert DemoStage(tmp_path, of_kind("postgres")).s3 is not None


@pytest.mark.usefixtures("played")
def test_a_run_beside_another_ends_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have one folder: to stop its servers would remove the other one's data."""
    stopped: list[str] = []

    def in_use(stage: object) -> list[str]:
        raise Misconfigured("the folder is in use", hint="stop that run first")

    stage = vars(demo)["DemoStage"]  # The one that plays.
    monkeypatch.setattr(stage, "clear", in_use)
    monkeypatch.setattr(stage, "stop", lambda _stage: stopped.append("all"))
    with pytest.raises(Misconfigured, match="in use"):
        demo.run()
    assert stopped == []
