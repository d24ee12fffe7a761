"""Measures a whole ``tideline merge`` and its steps on a warm machine.

The same without the archive of Spark's classes alternates with it. The merge is small: 1,000
updates into a table of 10,000 rows, from the same files each time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

import msgspec

from devtools.benchmarks import orders
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig, run_until_idle
from devtools.benchmarks.start_steps import Step
from devtools.benchmarks.whole import Whole
from tideline.cache import CACHE_VARIABLE
from tideline.warehouse.delta.jars import delta_jars
from tideline_spark.class_archive import make_archive

NAME = "merge_start"
ROWS, CHANGES, ROUNDS = 10_000, 1_000, 3
_WHOLE = "the whole command"
_MERGE = (
    sys.executable,
    "-c",
    "from tideline_console.app import main; main()",
    "merge",
    "--config",
)
_CHANGED = ("store", "warehouse")

Costs = dict[str, tuple[float, float]]
"""CPU and wall seconds by step."""


def run(rows: int) -> Iterator[Result]:
    """Measure medians of three rounds after an uncounted merge; ``rows`` is unused."""
    make_archive()
    with rig() as server:
        config = _prepare(server)
        bare = {CACHE_VARIABLE: str(server.folder / "empty")}
        rounds = [(_costs(server, config, {}), _costs(server, config, bare)) for _ in range(ROUNDS)]
    for step in rounds[0][0]:
        for index, metric in enumerate(("CPU", "wall")):
            ours, without = (median(one[of][step][index] for one in rounds) for of in (0, 1))
            yield result(
                NAME,
                f"{CHANGES} updates of {ROWS} rows",
                f"{metric} of {step}",
                value=(ours, "s"),
                baseline=("without the archive", without),
                goal="as little as can be",
            )


def _prepare(server: CaptureRig) -> Path:
    """Write the settings file, and next to it the data that a merge begins with."""
    orders.create(server.cursor)
    orders.fill(server.cursor, ROWS)
    settings = server.settings(initial="dump")
    config = server.folder / "tideline.toml"
    config.write_text(
        f"""
        pipeline = "shop"
        source = {{ url = "{server.dsn}", tables = ["public.*"] }}
        store.url = "{settings.store.url}"
        control.url = "{server.valkey.url()}"
        warehouse.url = "{settings.warehouse.url}"
        merge.jars = "{",".join(str(jar) for jar in delta_jars())}"
        """
    )
    run_until_idle(settings, server)
    _cost(_MERGE, config, {})
    server.cursor.execute("UPDATE orders SET amount = amount + 1 WHERE id <= %s", (CHANGES,))
    run_until_idle(settings, server)
    for name in _CHANGED:
        shutil.copytree(server.folder / name, server.folder / "kept" / name)
    return config


def _costs(server: CaptureRig, config: Path, environment: Mapping[str, str]) -> Costs:
    found: Costs = {}
    _restore(server)
    before = Step("", 0.0, 0.0)
    steps = (sys.executable, "-m", "devtools.benchmarks.start_steps")
    for line in _output(steps, config, environment):
        step = msgspec.json.decode(line, type=Step)
        found[step.name] = (step.cpu_s - before.cpu_s, step.wall_s - before.wall_s)
        before = step
    _restore(server)
    whole = _cost(_MERGE, config, environment)
    return {**found, _WHOLE: (whole.cpu_s, whole.wall_s)}


def _restore(server: CaptureRig) -> None:
    for name in _CHANGED:
        shutil.rmtree(server.folder / name)
        shutil.copytree(server.folder / "kept" / name, server.folder / name)


def _cost(command: tuple[str, ...], config: Path, environment: Mapping[str, str]) -> Whole:
    whole = (sys.executable, "-m", "devtools.benchmarks.whole", *command)
    return msgspec.json.decode(_output(whole, config, environment)[-1], type=Whole)


def _output(command: tuple[str, ...], config: Path, environment: Mapping[str, str]) -> list[str]:
    done = subprocess.run(
        [*command, str(config)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
