"""The servers of an example: PostgreSQL, the capture worker, and a publisher, in a folder that is
removed at the end."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from devtools.services.postgres import NOT_DURABLE, PostgresServer
from devtools.services.private_file import write_private
from devtools.services.process import Child
from devtools.standing import toml_lines

_PATIENCE_S = 300.0
_PAUSE_S = 0.1
_SHOWN = 3_000
"""Characters of a program's log, where the example fails."""
_PUBLISHER = "events"


class ExampleStage:
    """A shop's database at ``dsn``, and what publishes its changes."""

    def __init__(self, folder: Path, source: PostgresServer, children: ExitStack) -> None:
        self.folder = folder
        self.dsn = source.dsn()
        self._children = children
        self._programs: list[Child] = []

    def run(self, *statements: str) -> None:
        """Run ``statements`` at the database, each in a transaction of its own."""
        run(self.dsn, *statements)

    def publish(self, publisher: Mapping[str, Any], *, before_image: str = "key") -> None:
        """Start the worker, and a publisher with the settings ``publisher``; return once changes
        are captured."""
        (kind,) = publisher.keys() - {"output", "tables", "operations", "format"}
        plain = {name: value for name, value in publisher.items() if name != kind}
        lines = [
            'pipeline = "shop"',
            *_section("source", {"url": self.dsn, "tables": ["public.*"]}),
            *_section("store", {"url": (self.folder / "store").as_uri()}),
            *_section("warehouse", {"url": (self.folder / "warehouse").as_uri()}),
            *_section("capture", {"flush_interval_s": 0.1}),
            *_section('tables."public.*"', {"before_image": before_image}),
            *_section(f"publish.{_PUBLISHER}", {**plain, "poll_interval_s": 0.02}),
            *_section(f"publish.{_PUBLISHER}.{kind}", publisher[kind]),
        ]
        settings = self.folder / "tideline.toml"
        write_private(settings, "\n".join(lines) + "\n")
        worker = self._start("capture", "--config", str(settings))
        publishing = self._start("publish", _PUBLISHER, "--config", str(settings))
        self.wait_for("tables are captured", lambda: "captures a table" in worker.log.read_text())
        self.wait_for("it publishes", lambda: "publishing" in publishing.log.read_text())

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Return once ``condition`` holds. Raises RuntimeError that names ``what`` where a program
        has ended, or after five minutes."""
        until = time.monotonic() + _PATIENCE_S
        while not condition():
            ended = [one.name for one in self._programs if not one.running]
            if ended or time.monotonic() > until:
                raise RuntimeError(f"it never happened: {what}; ended: {ended}")
            time.sleep(_PAUSE_S)

    def _start(self, command: str, *arguments: str) -> Child:
        program = str(Path(sys.executable).parent / "tideline")
        child = Child(command, [program, command, *arguments], run_folder=self.folder)
        child.start()
        self._programs.append(child)
        self._children.callback(child.stop)
        return child


@contextmanager
def stage() -> Iterator[ExampleStage]:
    """Start a database; all that was started is ended, and its files are removed."""
    with ExitStack() as children:
        folder = Path(children.enter_context(tempfile.TemporaryDirectory(prefix="tideline-")))
        source = PostgresServer(folder / "source", settings=NOT_DURABLE)
        children.callback(source.remove)
        source.start()
        with ExitStack() as programs:
            try:
                yield ExampleStage(folder, source, programs)
            except BaseException:
                for log in sorted(folder.glob("*.log")):
                    print(f"--- {log.name}", log.read_text()[-_SHOWN:], sep="\n", file=sys.stderr)
                raise


def run(dsn: str, *statements: str) -> None:
    """Run ``statements``, each in a transaction of its own."""
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of ``query``."""
    connection = psycopg2.connect(dsn)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())
    finally:
        connection.close()


def _section(name: str, settings: Mapping[str, Any]) -> list[str]:
    return ["", f"[{name}]", *toml_lines(settings)]
