"""The command line: what is parsed, how errors leave the program, and how quickly it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tideline.contract.errors import (
    CorruptData,
    Fenced,
    InvariantBroken,
    Misconfigured,
    SourceLost,
    TidelineError,
    Unavailable,
)
from tideline.contract.request import Action, Command, DumpRequest, KeyRange, TimeRange
from tideline_console import app as entry
from tideline_console.errors import exit_code
from tideline_console.requests import make_request

TIDELINE = Path(sys.executable).parent / "tideline"
CANARY = "canary-77aa"
COMMANDS = (
    "init",
    "assess",
    "delete-pipeline",
    "doctor",
    "capture",
    "dump",
    "pause",
    "resume",
    "cancel",
    "tune",
    "verify",
    "plan",
    "merge",
    "garbage",
    "status",
    "cost",
    "inspect",
)


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed program in a process of its own."""
    return subprocess.run(
        [str(TIDELINE), *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert command in done.stdout


def test_the_version_is_the_packages() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"tideline {version('tideline-cdc')}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.thorough
def test_a_shell_completes_commands(shell: str) -> None:
    if shell == "bash":
        words = {"COMP_WORDS": "tideline dum", "COMP_CWORD": "1"}
    else:
        words = {"_TYPER_COMPLETE_ARGS": "tideline dum"}
    complete = f"complete_{shell}"
    done = run(_TIDELINE_COMPLETE=complete, _TYPER_COMPLETE_FISH_ACTION="get-args", **words)
    assert "dump" in done.stdout
    assert "status" not in done.stdout


def test_a_slip_of_the_fingers_names_what_is_meant() -> None:
    """Commands, commands of `inspect`, and options."""
    for words, meant in (
        (("stats",), "Did you mean 'status'?"),
        (("inspect", "part"), "'parts'?"),
        (("status", "--confg", "x"), "--config"),
    ):
        done = CliRunner().invoke(entry.app, list(words))
        assert done.exit_code == 2
        assert meant in done.output


def test_help_imports_nothing_heavy() -> None:
    """What makes start-up slow stays out of the program until a command needs it."""
    heavy = ("pydantic", "pyarrow", "redis", "psycopg2", "pyspark", "obstore", "deltalake", "numpy")
    code = (
        "import sys; from tideline_console.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        f"print('loaded:', sorted(set(sys.modules) & set({heavy!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "loaded: []" in done.stdout


@pytest.mark.parametrize(
    "words", [(), ("nope",), ("capture", "--until-idle", "x"), ("dump", "--chunk-rows", "0", "a.b")]
)
def test_wrong_usage_exits_with_2(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(entry.app, list(words)).exit_code == 2


@pytest.mark.parametrize("command", ["doctor", "capture", "merge", "status"])
@pytest.mark.thorough
def test_every_command_takes_config(command: str, tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    done = run(command, "--config", str(missing))
    assert done.returncode == 2
    assert f"tideline: no settings file at {missing}" in done.stderr
    assert "hint: name one with --config" in done.stderr
    assert "Traceback" not in done.stderr


def test_config_from_the_environment(tmp_path: Path) -> None:
    done = run("status", TIDELINE_CONFIG=str(tmp_path / "there.toml"))
    assert "there.toml" in done.stderr


def test_every_mistake_of_the_settings_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "tideline.toml"
    path.write_text(
        f'pipeline = "a b"\n[source]\nurl = "oracle://u:{CANARY}@h/d"\npasword = "{CANARY}"\n'
        '[store]\nurl = "ftp://x"\n'
    )
    done = run("doctor", "--config", str(path))
    assert done.returncode == 2
    for key in ("pipeline", "source.url", "source.pasword", "store.url", "warehouse"):
        assert key in done.stderr
    assert CANARY not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Misconfigured("m"), 2),
        (Unavailable("m"), 3),
        (SourceLost("m"), 4),
        (CorruptData("m"), 5),
        (Fenced("m"), 6),
        (InvariantBroken("m"), 1),
        (TidelineError("m"), 1),
    ],
)
def test_errors_leave_as_one_text_and_a_code(
    error: TidelineError,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(error) == code
    error.hint = "do [this]"

    def fail() -> None:
        raise error

    with pytest.raises(SystemExit) as left:
        entry.main(fail)
    assert left.value.code == code
    assert capsys.readouterr().err == "tideline: m\n  hint: do [this]\n"


def test_an_interrupt_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as left:
        entry.main(interrupt)
    assert left.value.code == 130
    assert capsys.readouterr().err == ""


def asked(
    monkeypatch: pytest.MonkeyPatch, *words: str, stdin: str | None = None
) -> tuple[DumpRequest, bool]:
    """The request that a command line sends, and whether it waits."""
    sent: list[tuple[DumpRequest, bool]] = []

    def note(_settings: object, request: DumpRequest, *, wait: bool) -> int:
        sent.append((request, wait))
        return 0

    monkeypatch.setattr("tideline_console.dump.run", note)
    monkeypatch.setattr("tideline_console.commands.requests.settings_at", lambda _config: None)
    result = CliRunner().invoke(entry.app, ["dump", *words], stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return sent[0]


def test_dump_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    request, wait = asked(
        monkeypatch, "public.a", 'public."b c"', "--chunk-rows", "50", "--delay-ms", "7", "--wait"
    )
    assert wait
    assert request.tables == ("public.a", 'public."b c"')
    assert (request.chunk_rows, request.delay_ms) == (50, 7)
    assert request.whole
    other, wait = asked(monkeypatch, "public.a")
    assert not wait
    assert other.request_id != request.request_id


def test_dump_of_all_keys_and_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert asked(monkeypatch, "--all")[0].tables == ("*.*",)
    path = tmp_path / "keys.csv"
    path.write_text("1,a\n2,b\n")
    request, _ = asked(monkeypatch, "public.a", "--keys", str(path), "--id", "mine")
    assert request.keys == (("1", "a"), ("2", "b"))
    assert request.request_id == "mine"
    request, _ = asked(monkeypatch, "public.a", "--time", "placed_at", "2026-01-01", "2026-01-02")
    assert request.time == TimeRange("placed_at", "2026-01-01", "2026-01-02")


@pytest.mark.parametrize("tables", [[], ["public.a"]])
def test_tables_or_all(tables: list[str]) -> None:
    with pytest.raises(Misconfigured, match="one of the two"):
        make_request(tables, every=bool(tables))


def test_a_range_of_keys() -> None:
    request = make_request(["public.a"], key_range=('1,"a,b"', None), priority=3)
    assert request.key_range == KeyRange(("1", "a,b"), None)
    assert request.priority == 3
    with pytest.raises(Misconfigured, match="one line of CSV"):
        make_request(["public.a"], key_range=(None, "1\n2"))


def test_dump_of_a_range_with_keys_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    request, _ = asked(
        monkeypatch,
        *("public.a", "--from", "1,a", "--to", '2,"b,c"', "--keys", "-", "--priority", "-3"),
        stdin="7,a\n8,b\n",
    )
    assert request.key_range == KeyRange(("1", "a"), ("2", "b,c"))
    assert request.keys == (("7", "a"), ("8", "b"))
    assert request.priority == -3


def reported(monkeypatch: pytest.MonkeyPatch, *words: str) -> Command:
    """The command that a command line sends."""
    sent: list[Command] = []

    def note(_settings: object, command: Command) -> int:
        sent.append(command)
        return 0

    monkeypatch.setattr("tideline_console.control.run", note)
    monkeypatch.setattr("tideline_console.commands.requests.settings_at", lambda _config: None)
    result = CliRunner().invoke(entry.app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return sent[0]


def test_commands_to_dumps_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for action in (Action.PAUSE, Action.RESUME, Action.CANCEL):
        command = reported(monkeypatch, action.value, "cli-1", "cli-2")
        assert (command.action, command.requests) == (action, ("cli-1", "cli-2"))
        assert reported(monkeypatch, action.value, "--all").requests is None
    tuned = reported(monkeypatch, "tune", "--all", "--chunk-rows", "default", "--delay-ms", "50")
    assert (tuned.action, tuned.chunk_rows, tuned.delay_ms) == (Action.TUNE, "default", 50)


def test_what_excludes_each_other(tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"
    path.write_text("1\n")
    with pytest.raises(Misconfigured, match="exactly one table"):
        make_request(["public.a", "public.b"], keys=path)


def test_help_shows_the_names_of_a_publishers_section() -> None:
    """The program that prints help reads [brackets] as a style, and leaves them out."""
    done = CliRunner().invoke(entry.app, ["publish", "--help"], terminal_width=200)
    assert "NAME of a section publish.NAME" in done.output


@pytest.mark.parametrize(
    "words", [("--pause", "--move-to", "now"), ("--dry-run", "--resume"), ("--dry-run", "--pause")]
)
def test_a_publisher_takes_one_command_at_a_time(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(entry.app, ["publish", "events", *words], terminal_width=200)
    assert done.exit_code == 2
    assert "one at a time" in done.output
