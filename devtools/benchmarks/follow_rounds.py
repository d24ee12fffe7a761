# ruff: noqa: S608  statements are made of numbers and names of ours
"""Measures the CPU of a round of many small tables: by a merger with its Spark here, by one on a
cluster of two workers, and by ``tideline merge``."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import msgspec
import psutil

from devtools.benchmarks.clocks import cpu_s
from devtools.benchmarks.follow_rig import COMMAND, merger_status, running, settings_file, until
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, on_cluster, rig, run_until_idle
from devtools.benchmarks.whole import Whole
from devtools.services.spark_cluster import SparkCluster
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store

NAME = "follow_rounds"
COUNTS = (100, 500)
CHANGES = 10
WARM = 300
"""Merges after which a session is warm: the round that counts comes after these."""
ROUNDS_MAX = 4
GOAL_S = 60.0
"""For a hundred tables."""
_EXECUTOR_MEMORY = "1g"


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
        here = _by_merger(server, settings, count, rows)
        folder = server.folder / "cluster"
        folder.mkdir()
        with SparkCluster(folder, workers=2, memory=_EXECUTOR_MEMORY) as cluster:
            there = _by_merger(server, settings, count, rows, cluster)
        _change(server, count, rows, _rounds(count))
        run_until_idle(settings, server)
        alone = _alone(server, settings)
    workload = f"{CHANGES} changes into each of {count} tables of {rows} rows"
    goal = f"≤ {GOAL_S * count / 100:g} s"
    for place, (cpu, wall) in (("here", here), ("on two workers", there)):
        for metric, value in (("CPU", cpu), ("wall", wall)):
            yield result(
                NAME,
                f"{workload}, {place}",
                f"{metric} of a round",
                value=(value, "s"),
                baseline=("CPU of tideline merge", alone),
                goal=goal if (metric, place) == ("CPU", "here") else "-",
            )


def _rounds(count: int) -> int:
    """Return how many rounds are merged; the last one counts."""
    return min(ROUNDS_MAX, 1 + math.ceil(WARM / count))


def _change(server: CaptureRig, count: int, rows: int, number: int) -> None:
    for table in range(count):
        server.cursor.execute(
            f"UPDATE small_{table} SET status = 'paid', amount = amount + 1"
            f" WHERE id % {rows // CHANGES} = {number + 1}"
        )


def _by_merger(
    server: CaptureRig,
    settings: Settings,
    count: int,
    rows: int,
    cluster: SparkCluster | None = None,
) -> tuple[float, float]:
    """Return CPU and wall seconds of the last round, from its first change on, executors' CPU
    included; CPU of what captures meanwhile is not counted."""
    taken = (0.0, 0.0)
    merge = {} if cluster is None else on_cluster(cluster, _EXECUTOR_MEMORY)
    config = settings_file(server, settings, merge)
    with running("merge", config, "--follow") as merger:
        for number in range(_rounds(count)):
            begun, used = time.monotonic(), _used_s(merger.pid, cluster)
            _change(server, count, rows, number)
            run_until_idle(settings, server)
            tail = Chain(open_store(settings.store), settings.pipeline).tail()
            number = tail.manifest.manifest_number if tail else 0
            until("all is merged", partial(_has_merged, settings, number))
            taken = (_used_s(merger.pid, cluster) - used, time.monotonic() - begun)
    return taken


def _used_s(pid: int, cluster: SparkCluster | None) -> float:
    """Return the CPU seconds so far of a merger, its sessions, and its executors."""
    merger = psutil.Process(pid)
    executors = cluster.executors() if cluster else ()
    return cpu_s([merger, *merger.children(recursive=True), *executors])


def _has_merged(settings: Settings, manifest_number: int) -> bool:
    status = merger_status(settings)
    return (
        status is not None
        and status.manifest_number >= manifest_number
        and not (status.waiting or status.plans)
    )


def _alone(server: CaptureRig, settings: Settings) -> float:
    """Return the CPU seconds of a whole ``tideline merge``."""
    config = settings_file(server, settings)
    command = [sys.executable, "-m", "devtools.benchmarks.whole", *COMMAND, "merge"]
    done = subprocess.run([*command, "--config", str(config)], check=True, capture_output=True)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Whole).cpu_s
