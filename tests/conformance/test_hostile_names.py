"""Tables and columns of every hostile name that a server takes, on every source: captured, told of
by every command, and in `make long` merged in every mode, verified, rebuilt and maintained."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.hostile_names import CANARY, VARIABLE
from tests.fixtures.hostile_source import Server, assert_seen, compare, expected
from tests.fixtures.sources import ConformingSource
from tideline.contract.modes import Mode
from tideline.store.objects import open_store
from tideline_console import assess, doctor, inspect, plan, status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIDELINE = Path(sys.executable).parent / "tideline"


def held(pipeline: Pipeline[Any], table: str) -> list[dict[str, Any]]:
    """A table's rows as its parts have them, by key, the newest of each that is not deleted."""
    store, rows = open_store(pipeline.settings.store), dict[int, dict[str, Any]]()
    for part in (p for m in pipeline.manifests() for p in m.parts if p.table == table):
        for row in pq.read_table(io.BytesIO(store.get(part.key) or b"")).to_pylist():
            rows[row["id"]] = row
    kept = (rows[key] for key in sorted(rows) if rows[key]["_tl_op"] != "d")
    return [{k: v for k, v in row.items() if not k.startswith("_tl_")} for row in kept]


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
    compare(pipeline.settings.warehouse.url, made, modes, spark)
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
    compare(pipeline.settings.warehouse.url, made, modes, spark)
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
