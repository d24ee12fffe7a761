# ruff: noqa: S608  statements are made of constants, and of names that are quoted
"""Tables and columns of every hostile name that a server takes, on every source: captured, told of
by every command, and in `make long` merged in every mode, verified, rebuilt and maintained."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pyarrow.parquet as pq
import pymysql
import pytest

from console import assess, doctor, inspect, plan, status
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.hostile_names import CANARY, NAMES, VARIABLE, Hostile, admitted, one_case
from tests.fixtures.sources import ConformingSource
from tideline.contract import change_log
from tideline.contract.layout import table_path
from tideline.contract.modes import Mode
from tideline.contract.printable import printable
from tideline.contract.schema import TableId, parse_table
from tideline.store.objects import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIDELINE = Path(sys.executable).parent / "tideline"
REFUSED_MAX = 25
"""Of the names, by any server: more would be a mistake of ours."""

OWN_COLUMNS = (
    "_tl_",
    *(change_log.BATCH, change_log.SEQUENCE, change_log.OPERATION, change_log.BEFORE_PREFIX),
)


@dataclass(frozen=True, slots=True)
class Made:
    """What there is at the source: ``names`` of tables with the columns ``id`` (1) and ``v`` (the
    table's name), and ``columns`` of the table ``wide`` besides ``id``, each holding its name."""

    schema: str
    names: list[str]
    columns: list[str]

    def table(self, name: str) -> str:
        return str(TableId(self.schema, name))

    @property
    def tables(self) -> list[str]:
        return [self.table(name) for name in (*self.names, "wide")]


class Server:
    """Statements with names in them."""

    def __init__(self, source: ConformingSource) -> None:
        self._source = source
        self._mark = '"' if str(source.source["url"]).startswith("postgres") else "`"
        self.is_postgres = self._mark == '"'

    def quote(self, name: str) -> str:
        return self._mark + name.replace(self._mark, self._mark * 2) + self._mark

    @contextmanager
    def session(self) -> Iterator[Callable[[str], Any]]:
        with self._source.session() as cursor:
            if not self.is_postgres:
                cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')")

            yield cursor.execute

    def make(self) -> Made:
        schema = self._source.full_name("x").partition(".")[0]
        with self.session() as run:

            def takes(statement: str) -> bool:
                try:
                    run(statement)
                except (psycopg2.Error, pymysql.Error):
                    return False
                return True

            def table_of(name: str) -> bool:
                return self._holds(name) and takes(made.replace("{}", self.quote(name)))

            text = "text" if self.is_postgres else "TEXT CHARACTER SET utf8mb4"
            made = "CREATE TABLE {} (id INT PRIMARY KEY, v " + text + ")"
            tables, no_tables = admitted(NAMES, table_of)
            run("CREATE TABLE wide (id INT PRIMARY KEY)")
            wanted = set(one_case(one.name for one in NAMES))
            columns, no_columns = admitted(
                (one for one in NAMES if one.name in wanted),
                lambda n: (
                    self._holds(n) and takes(f"ALTER TABLE wide ADD COLUMN {self.quote(n)} {text}")
                ),
            )
            # MySQL 8 takes it for all columns, and the table is left out (test_mysql_catalog).
            if takes("SELECT u.a FROM (SELECT t.`*` FROM (SELECT 1 AS a, 2 AS `*`) t) u"):
                run("ALTER TABLE wide DROP COLUMN `*`")
                columns = [one for one in columns if one.name != "*"]
            _count(no_tables, no_columns)
            found = Made(schema, [t.name for t in tables], [c.name for c in columns])
            for name in found.names:
                run(f"INSERT INTO {self.quote(name)} VALUES (1, " + self.text(name) + ")")
            values = ", ".join(map(self.text, found.columns))
            run(f"INSERT INTO wide VALUES (1, {values}), (2, {values})")
            self._describe(run, found)
        return found

    def _holds(self, name: str) -> bool:
        """MySQL takes letters of four bytes in a name, and makes question marks of them."""
        return self.is_postgres or max(map(ord, name)) <= 0xFFFF

    def change(self, made: Made) -> None:
        """Every row of key 1 is another, and one more is there."""
        with self.session() as run:
            for name in made.names:
                run(f"UPDATE {self.quote(name)} SET v = " + self.text(f"now {name}"))
                run(f"INSERT INTO {self.quote(name)} VALUES (2, " + self.text(name) + ")")
            sets = (f"{self.quote(n)} = {self.text('now ' + n)}" for n in made.columns)
            run(f"UPDATE wide SET {', '.join(sets)} WHERE id = 1")
            run("DELETE FROM wide WHERE id = 2")

    def text(self, value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    def _describe(self, run: Callable[[str], Any], made: Made) -> None:
        for name in made.names:
            comment = self.text(f"about {name}")
            if self.is_postgres:
                run(f"COMMENT ON TABLE {self.quote(name)} IS {comment}")
                run(f"COMMENT ON COLUMN {self.quote(name)}.v IS {comment}")
            else:
                run(f"ALTER TABLE {self.quote(name)} COMMENT = {comment}")


def _count(*refused: Sequence[Hostile]) -> None:
    for names in refused:
        assert len(names) <= REFUSED_MAX, [one.name for one in names]


def held(pipeline: Pipeline[Any], table: str) -> list[dict[str, Any]]:
    """A table's rows as its parts have them, by key, the newest of each that is not deleted."""
    store, rows = open_store(pipeline.settings.store), dict[int, dict[str, Any]]()
    for part in (p for m in pipeline.manifests() for p in m.parts if p.table == table):
        for row in pq.read_table(io.BytesIO(store.get(part.key) or b"")).to_pylist():
            rows[row["id"]] = row
    kept = (rows[key] for key in sorted(rows) if rows[key]["_tl_op"] != "d")
    return [{k: v for k, v in row.items() if not k.startswith("_tl_")} for row in kept]


def expected(made: Made, *, changed: bool) -> dict[str, list[dict[str, Any]]]:
    """The source's rows."""
    word = "now " if changed else ""
    found: dict[str, list[dict[str, Any]]] = {
        made.table(name): [
            {"id": 1, "v": word + name},
            *([{"id": 2, "v": name}] if changed else []),
        ]
        for name in made.names
    }
    first = {"id": 1, **{name: word + name for name in made.columns}}
    second = {"id": 2, **{name: name for name in made.columns}}
    found[made.table("wide")] = [first] if changed else [first, second]
    return found


def assert_seen(output: str) -> None:
    """No character of ``output`` is unseen, and no name has begun a line of its own."""
    lines = output.split("\n")
    assert [line for line in lines if printable(line) != line] == []
    assert not [line for line in lines if line.startswith(("INFO fake", "ERROR fake"))]
    assert CANARY not in output


@pytest.mark.timeout(600)
def test_every_name_is_captured_and_shown(
    conforming: ConformingSource, pipeline_of: PipelineFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(conforming)
    made = server.make()
    pipeline = pipeline_of(conforming)
    first = pipeline.start(until_idle_s=2.0)
    assert first.wait(300) == 0, first.output()[-3000:]
    assert set(pipeline.state().tables) >= set(made.tables)
    found = {table: held(pipeline, table) for table in made.tables}
    assert found == expected(made, changed=False)
    server.change(made)
    second = pipeline.start(until_idle_s=2.0)
    assert second.wait(300) == 0, second.output()[-3000:]
    found = {table: held(pipeline, table) for table in made.tables}
    assert found == expected(made, changed=True)
    assert_seen(first.output() + second.output())
    capsys.readouterr()
    for form in assess.FORMATS:
        assess.run(pipeline.settings, form)
        shown = capsys.readouterr().out
        if form != "csv":
            assert_seen(shown)
    doctor.run(pipeline.settings, pipeline.config)
    plan.run(pipeline.settings, [], as_json=False)
    inspect.state(pipeline.settings)
    inspect.parts(pipeline.settings, table=None, last=1_000)
    status.run(pipeline.settings, as_json=False)
    status.run(pipeline.settings, as_json=True)
    assert_seen(capsys.readouterr().out)
    plan.run(pipeline.settings, [], as_json=True)
    planned = json.loads(capsys.readouterr().out)
    assert planned["held"] == {}
    assert {one["table"] for one in planned["tables"]} == set(made.tables)


class Commands:
    """``tideline`` in processes whose environment has the canary; ``output``: all they printed."""

    def __init__(self, config: Path) -> None:
        self._words = ["--config", str(config)]
        self._environment = {**os.environ, VARIABLE: CANARY}
        self.output = ""

    def run(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [str(TIDELINE), *words, *self._words],
            capture_output=True,
            check=False,
            timeout=3_000,
            env=self._environment,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert done.returncode in codes, (words, out[-5_000:], err[-5_000:])
        assert "Traceback" not in err
        if "csv" not in words and "--metrics" not in words:
            assert_seen(out + err)
        self.output += out + err
        return out

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """A worker that runs meanwhile."""
        worker = subprocess.Popen(
            [str(TIDELINE), "capture", *self._words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
        )
        try:
            yield
            worker.terminate()
            out, _ = worker.communicate(timeout=120)
            assert worker.returncode == 0, out[-3_000:]
            assert_seen(out.decode())
        finally:
            worker.kill()
            worker.wait(60)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_every_name_through_every_command(
    conforming: ConformingSource, pipeline_of: PipelineFactory, spark: SparkSession, tmp_path: Path
) -> None:
    server = Server(conforming)
    made = server.make()
    modes = {name: list(Mode)[at % len(Mode)] for at, name in enumerate(made.names)}
    kept = {made.table(name): {"mode": mode.value} for name, mode in modes.items()}
    pipeline = pipeline_of(conforming, tables=kept, merge={"driver_memory": "2g"})
    commands = Commands(pipeline.config)
    commands.run("doctor")
    for form in assess.FORMATS:
        commands.run("assess", "--format", form)
    commands.run("capture", "--until-idle", "2")
    commands.run("plan")
    commands.run("merge")
    server.change(made)
    commands.run("capture", "--until-idle", "2")
    for words in (["merge"], ["plan"], ["plan", "--json"], ["status"], ["status", "--json"]):
        commands.run(*words)
    commands.run("status", "--metrics")
    compare(pipeline, made, modes, spark)
    some = [made.table(name) for name in made.names[::20]]
    # A log of changes has no rows to compare.
    compared = [made.table(n) for n in made.names if modes[n] is not Mode.APPEND]
    with commands.capturing():
        commands.run("dump", *some, made.table("wide"), "--wait")
        commands.run("merge")
        verdict = commands.run("verify", *compared)
        assert verdict.count(" equal at seq ") == len(compared)
        commands.run("rebuild", made.table("wide"))
        for table in some:
            commands.run("rebuild", table)
    compare(pipeline, made, modes, spark)
    shown = ("state", "parts", "manifests", "manifest 3")
    for line in ("maintain", "garbage", "doctor", "status", *(f"inspect {one}" for one in shown)):
        commands.run(*line.split())
    part = next(p.key for m in pipeline.manifests() for p in m.parts if p.table.endswith("wide"))
    commands.run("inspect", "rows", part)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path
            assert CANARY not in str(path)
    # The folder of a test holds its store and warehouse, and nothing is beside them.
    assert not list(tmp_path.parent.glob("passwd"))


def compare(
    pipeline: Pipeline[Any], made: Made, modes: dict[str, Mode], spark: SparkSession
) -> None:
    """The warehouse's rows that are now, of each mode, against the source's."""
    for table, rows in expected(made, changed=True).items():
        mode = modes.get(parse_table(table).name, Mode.CURRENT)
        url = table_path(pipeline.settings.warehouse.url, parse_table(table))
        frame = spark.newSession().read.format("delta").load(url)
        found = {row["id"]: row.asDict(recursive=True) for row in _now(frame, mode)}
        assert [
            {k: v for k, v in found[key].items() if not k.startswith(OWN_COLUMNS)}
            for key in sorted(found)
        ] == rows, (table, mode)


def _now(frame: Any, mode: Mode) -> list[Any]:
    if mode is Mode.SOFT_DELETES:
        frame = frame.where("NOT _tl_deleted")
    elif mode is Mode.HISTORY:
        frame = frame.where("_tl_current")
    elif mode is Mode.APPEND:
        frame = frame.orderBy(change_log.SEQUENCE)  # Of each key the last one stays.
    found: list[Any] = frame.collect()
    return found
