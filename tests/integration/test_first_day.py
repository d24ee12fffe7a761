"""The README's first day: its commands, one after another in one shell, print what it says.

The servers are this test's own. All that is put in the place of what the README says is where they
listen (`Day.meant`), and that the program and the readers are installed already: the program is the
one that runs this test, the readers were installed by the README's own line, once for each wording
of it. In the README's output ``…`` stands for anything in a line, a line of it alone for any lines;
spaces in a row count as one, and lines without a letter or a digit not at all.
"""

from __future__ import annotations

import hashlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.services.ports import free_port
from devtools.services.postgres import NOT_DURABLE, PostgresServer, binaries
from devtools.services.process import unprivileged_account
from tideline.cache import cache_folder, rename_into_place

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
PATIENCE_S = 300.0
"""For one command on a loaded machine."""
INSTALLED = ("git clone", "make setup", ". .venv/bin/activate", "mkdir")
"""What makes the place that this test has already."""
READERS = ("python3 -m venv readers", "readers/bin/pip")
STARTS_SPARK = ('python -c "from tideline_console.spark', "tideline verify")
"""Left to the long form: a Spark of their own each, and others test the same."""
REPEATED = ("tideline status",)
"""Asked again until it prints what the README says: the worker needs its time."""


@dataclass(frozen=True)
class Step:
    """A command of the README, and what it prints there."""

    command: str
    printed: tuple[str, ...]


def steps_of(text: str, title: str = "The first day") -> list[Step]:
    """The steps of a chapter of ``text``, in order."""
    (chapter,) = re.findall(rf"^## {title}\n(.*?)^## ", text, re.M | re.S)
    found: list[tuple[list[str], list[str]]] = []
    for block in _BLOCK.findall(chapter):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(([line[2:]], []))
            elif line.startswith("> ") and not found[-1][1]:
                found[-1][0].append(line[2:])
            else:
                found[-1][1].append(line)
    return [Step("\n".join(command), tuple(printed)) for command, printed in found]


def plain(lines: Iterator[str] | tuple[str, ...] | list[str]) -> list[str]:
    """Lines with single spaces, without those that draw or part something."""
    spaced = [" ".join(line.split()) for line in lines]
    return [line for line in spaced if line == "…" or re.search(r"\w", line)]


def says(readme: tuple[str, ...], printed: list[str]) -> bool:
    """Whether ``printed`` is what the README says."""
    wanted = ""
    for line in plain(readme):
        if line == "…":
            wanted += r"(?:[^\n]*\n)*?"
        else:
            wanted += r"[^\n]*".join(map(re.escape, line.split("…"))) + r"\n"
    return re.fullmatch(wanted, "".join(f"{line}\n" for line in plain(printed))) is not None


class Shell:
    """One shell for all commands, as a person has it; ``run`` gives what a command prints."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._count = 0

    def run(self, command: str) -> list[str]:
        """The lines that ``command`` prints; fails when it, or its end, is not well."""
        assert self._process.stdin is not None
        self._count += 1
        mark = f"--end-{self._count}--"
        self._process.stdin.write(f"{command}\necho {mark} $?\n".encode())
        self._process.stdin.flush()
        text = self._read_until(mark)
        printed, _, code = text.rpartition(mark)
        assert code.strip() == "0", f"{command}\n{text}"
        return printed.splitlines()

    def _read_until(self, mark: str) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        text, end = b"", time.monotonic() + PATIENCE_S
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not re.search(rb"%s \d+\n" % mark.encode(), text):
                assert time.monotonic() < end, f"it does not end:\n{text.decode()}"
                if selector.select(1.0):
                    read = os.read(stdout.fileno(), 65_536)
                    assert read, f"the shell ended:\n{text.decode()}"
                    text += read
        return text.decode()

    def close(self) -> None:
        """End it and all that it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclass(frozen=True)
class Day:
    """The place where it goes: a folder, a shell there, and where the README's servers listen."""

    folder: Path
    shell: Shell
    meant: dict[str, str]

    def run(self, step: Step) -> list[str]:
        """Take a step; fails unless it prints what the README says."""
        command = step.command
        for address, ours in self.meant.items():
            command = command.replace(address, ours)
        end = time.monotonic() + PATIENCE_S
        while True:
            printed = self.shell.run(command)
            if says(step.printed, printed):
                return printed
            again = step.command.startswith(REPEATED) and time.monotonic() < end
            assert again, "\n".join([f"$ {command}", *printed, "", "README:", *step.printed])


@pytest.fixture
def day(tmp_path: Path) -> Iterator[Day]:
    folder, port = tmp_path / "first-day", free_port()
    folder.mkdir()
    with PostgresServer(tmp_path / "postgres", settings=NOT_DURABLE) as server:
        programs = binaries(unprivileged_account())
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{programs}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "LANG": "C.UTF-8",
            "TIDELINE_CACHE": str(cache_folder()),
            "PGPASSWORD": server.password,
        }
        shell = Shell(folder, environment)
        try:
            shell.run(f'psql -q {server.dsn()} -c "CREATE DATABASE shop"')
            meant = {"127.0.0.1:5432": f"127.0.0.1:{server.port}", "6379": str(port)}
            yield Day(folder, shell, meant)
        finally:
            shell.close()


def installed_readers(text: str = README, title: str = "The first day") -> Path:
    """The ``readers`` of a page's chapter, an environment with DuckDB, the README's with Polars:
    made by the page's own lines, kept in the cache under what they say."""
    steps = steps_of(text, title)
    commands = [step.command for step in steps if step.command.startswith(READERS)]
    reported = "\n".join(commands)
    kept = cache_folder() / f"readers-{hashlib.sha256(reported.encode()).hexdigest()[:16]}"
    if not kept.is_dir():
        work = cache_folder() / f"readers.{os.getpid()}"
        work.mkdir()
        for command in commands:
            subprocess.run(["bash", "-ec", command], cwd=work, check=True, timeout=PATIENCE_S)
        rename_into_place(work / "readers", kept)
        work.rmdir()
    return kept


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_each_command_prints_what_the_readme_says(day: Day, *, whole: bool) -> None:
    steps = steps_of(README)
    # Its programs name the folder that it was made in; the README's lines start Python alone.
    (day.folder / "readers").symlink_to(installed_readers())
    skipped = INSTALLED + READERS + (() if whole else STARTS_SPARK)
    for step in steps:
        if not step.command.startswith(skipped):
            day.run(step)
    left = {path.name for path in day.folder.iterdir()}
    logs = {name for name in left if name.endswith(".log")}
    assert left - logs <= {"tideline.toml", "store", "warehouse", "readers"}
    assert not list((day.folder / "store").rglob("*.parquet"))


def test_setup_prints_what_the_readme_says() -> None:
    """It runs for minutes; its words are looked for where they are."""
    (step,) = [step for step in steps_of(README) if step.command == "make setup"]
    places = [ROOT / "scripts" / "setup", *(ROOT / "devtools" / "services").glob("*.py")]
    texts = "\n".join(path.read_text() for path in places)
    for line in set(plain(step.printed)) - {"…"}:
        assert line.partition(" with Python ")[0].replace(".venv", "$venv") in texts, line


def test_every_command_of_a_first_day_is_there_in_order() -> None:
    words = [
        word
        for step in steps_of(README)
        for word in re.findall(r"^tideline (\S+)", step.command, re.M)
    ]
    assert list(dict.fromkeys(words)) == [
        *("init", "assess", "doctor", "capture", "status", "merge", "verify", "delete-pipeline"),
    ]
    readers = [step for step in steps_of(README) if "warehouse/public/orders" in step.command]
    assert len([step for step in readers if step.printed]) == 3


@pytest.mark.parametrize(
    ("readme", "printed", "same"),
    [
        (("a  b",), ["a b", "─────"], True),
        (("a", "…", "c"), ["a", "b", "b", "c"], True),
        (("a", "…", "c"), ["a", "c"], True),
        (("took … s",), ["took 3.1 s"], True),
        (("took … s",), ["took 3.1 h"], False),
        (("a",), ["a", "b"], False),
        (("a", "b"), ["a"], False),
        ((), ["an error"], False),
    ],
)
def test_what_counts_as_the_same(readme: tuple[str, ...], printed: list[str], same: bool) -> None:
    assert says(readme, printed) == same
