# ruff: noqa: S608  statements are made of numbers and names of ours
"""Measures the CPU of a round of many small tables: by a merger, and by ``tideline merge``."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial

import msgspec

from devtools.benchmarks.clocks import clocks, since
from devtools.benchmarks.follow_rig import COMMAND, settings_file, until
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig, run_until_idle
from devtools.benchmarks.whole import Whole
from tideline.settings import Settings
from tideline_console.follow.plan_runs import PlanRuns
from tideline_console.follow.rounds import Rounds
from tideline_console.spark import spark_session

NAME = "follow_rounds"
COUNTS = (100, 500)
CHANGES = 10
ROUNDS = 4
"""The last one counts: by then the session is warm."""
GOAL_S = 60.0
"""For a hundred tables."""


def run(rows: int) -> Iterator[Result]:
    """Measure tables of a fiftieth of ``rows`` rows each: 10,000 with the default 500,000. Below
    100,000 the counts are a tenth, to try it."""
    for count in COUNTS if rows >= 100_000 else [one // 10 for one in COUNTS]:
        yield from _measured(count, rows // 50)


def _measured(count: int, rows: int) -> Iterator[Result]:
    with rig() as server:
        for number in range(count):
            server.cursor.execute(
                f"CREATE TABLE small_{number} (id bigint PRIMARY KEY, status text, note text,"
                " amount numeric(12,2), changed timestamptz);"
                f"INSERT INTO small_{number} SELECT g, 'new', 'note ' || g, g, now()"
                f" FROM generate_series(1, {rows}) g"
            )
        settings = server.settings(initial="dump")
        run_until_idle(settings, server)
        merger, wall = _by_merger(server, settings, count, rows)
        _change(server, count, rows, ROUNDS)
        run_until_idle(settings, server)
        alone = _alone(server, settings)
    workload = f"{CHANGES} changes into each of {count} tables of {rows} rows"
    goal = f"≤ {GOAL_S * count / 100:g} s"
    for metric, value, unit in (("CPU", merger, "s"), ("wall", wall, "s")):
        yield result(
            NAME,
            workload,
            f"{metric} of a round",
            value=(value, unit),
            baseline=("CPU of tideline merge", alone),
            goal=goal if metric == "CPU" else "-",
        )


def _change(server: CaptureRig, count: int, rows: int, number: int) -> None:
    for table in range(count):
        server.cursor.execute(
            f"UPDATE small_{table} SET status = 'paid', amount = amount + 1"
            f" WHERE id % {rows // CHANGES} = {number + 1}"
        )


def _by_merger(
    server: CaptureRig, settings: Settings, count: int, rows: int
) -> tuple[float, float]:
    """Return CPU and wall seconds of the last round; what captures in between is not counted."""
    taken = (0.0, 0.0)
    with spark_session(settings, "merge", long_lived=True) as session:
        for number in range(ROUNDS):
            if number:
                _change(server, count, rows, number)
                run_until_idle(settings, server)
            rounds = Rounds(settings, PlanRuns(settings, session))
            begun = clocks()
            thread = threading.Thread(target=rounds.run)
            thread.start()
            until("all is merged", partial(_has_merged, rounds, count))
            rounds.stop()
            thread.join()
            taken = since(begun)
    return taken


def _has_merged(rounds: Rounds, count: int) -> bool:
    return rounds.beat().tables_merged >= count


def _alone(server: CaptureRig, settings: Settings) -> float:
    """Return the CPU seconds of a whole ``tideline merge``."""
    config = settings_file(server, settings)
    command = [sys.executable, "-m", "devtools.benchmarks.whole", *COMMAND, "merge"]
    done = subprocess.run([*command, "--config", str(config)], check=True, capture_output=True)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Whole).cpu_s
