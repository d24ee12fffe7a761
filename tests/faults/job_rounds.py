"""Rounds of the Spark jobs' faults, for the long form: deaths, races, replays, troubles, and kills.

A round is a warehouse of its own, with tables in every mode, that goes through everything once; a
death of each job is taken up several times. Deaths are images (`tests.faults.camera`); *kills* are
SIGKILLs of a `tideline` command's process group, a moment drawn after it has begun to write.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.faults.deaths import Deaths
from tests.faults.every_mode import LOG, PAST, TABLES, EveryMode
from tests.faults.jobs import Jobs, unique
from tests.faults.races import Races
from tests.faults.troubles import RUINS, Troubles
from tests.fixtures.settings import as_toml
from tideline.contract.errors import TidelineError
from tideline.contract.modes import Mode
from tideline.java import java_home
from tideline.warehouse.delta.jars import delta_jars
from tideline_spark.failures import SparkFailure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "rounds", "images", "merge", "rebuild", "maintain", "verify", "taken up", "kills", "replays",
    "races", *RUINS, "full disk", "seconds",
)  # fmt: skip
_REPOSITORY = Path(__file__).parents[2]
_KILLED_WITHIN_S = 4.0
_PATIENCE_S = 240.0
_DISKS = (400, 1_200, 2_000, 3_500)
_HALF_MADE = 0.3
_BROKEN_OFF = "broken off"


def play(rounds: int, counts: Counter[str], *, seed: int, folder: Path, recoveries: int) -> None:
    """Play so many rounds; after each, the counts so far are shown."""
    with _spark(folder / "spark") as spark:
        for number in range(rounds):
            begun = time.monotonic()
            print(f"jobs, round {number + 1}: seed {seed + number}", flush=True)
            try:
                _round(spark, folder / f"jobs-{number}", counts, seed + number, recoveries)
                counts["rounds"] += 1
            except (AssertionError, TidelineError, *SparkFailure) as error:
                print(f"  broken off: {type(error).__name__}: {error}", flush=True)
                traceback.print_exc()
                counts[_BROKEN_OFF] += 1
            counts["seconds"] += round(time.monotonic() - begun)
            print(reported(counts), flush=True)


def reported(counts: Counter[str]) -> str:
    """The table of counts, and what came of the races."""
    columns = (*COLUMNS, _BROKEN_OFF)
    widths = [max(len(name), len(str(counts[name]))) for name in columns]
    lines = [
        "  ".join(name.rjust(width) for name, width in zip(columns, widths, strict=True)),
        "  ".join(str(counts[n]).rjust(width) for n, width in zip(columns, widths, strict=True)),
    ]
    rest = [f"{counts[name]:5}  {name}" for name in sorted(counts) if name not in columns]
    return "\n".join([*lines, "", *rest])


def _round(
    spark: SparkSession, folder: Path, counts: Counter[str], seed: int, recoveries: int
) -> None:
    random_ = Random(seed)
    tables = EveryMode(folder / "root", seed=seed, laid_out=bool(seed % 2))
    tables.fill()
    album = folder / "album"
    deaths = Deaths(spark, tables, album, counts, seed=seed, recoveries=recoveries)
    races, troubles = Races(spark, tables, counts), Troubles(spark, tables, counts, seed=seed)
    first = unique("first")
    if random_.random() < _HALF_MADE:
        troubles.created_before(first, *random_.sample(TABLES, 2))
    deaths.merge(first)
    tables.more(24, step=True)
    deaths.merge(unique("second"))
    deaths.replay()
    races.merges()
    plan = troubles.waiting()
    for bytes_max in random_.sample(_DISKS, 2):
        troubles.full_disk(plan, bytes_max)
    for _ in range(2):
        troubles.ruined_parts(plan, {name: random_.choice(sorted(RUINS)) for name in TABLES})
    troubles.ruined_parts(plan, {random_.choice(TABLES): random_.choice(sorted(RUINS))})
    troubles.over(plan)
    troubles.ruined_rebuild(random_.choice(sorted(RUINS)))
    troubles.ruined_verification(random_.choice(sorted(RUINS)))
    deaths.rebuild()
    deaths.verify()
    _killed(spark, tables, counts, random_)
    deaths.maintain()
    races.rebuilds(PAST, random_.choice((Mode.HISTORY, Mode.CURRENT)))
    deaths.rebuild()


def _killed(spark: SparkSession, tables: EveryMode, counts: Counter[str], random_: Random) -> None:
    """The commands are killed for real, and the next run of the job goes on."""
    tables.more(16, step=True)
    config = _config(tables)
    jobs = Jobs(spark, tables)
    mode = tables.modes[LOG]
    every: dict[str, tuple[list[str], Callable[[], object]]] = {
        "merge": (["merge"], lambda: jobs.merge(unique("after"))),
        "rebuild": (["rebuild", LOG, "--mode", mode.value], lambda: jobs.rebuild(LOG, mode)),
        "maintain": (["maintain"], lambda: jobs.maintain(unique("after"))),
    }
    for name, (words, again) in every.items():
        if _kill(words, config, tables.root, random_):
            counts["kills"] += 1
            counts[f"killed: {name}"] += 1
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        again()
        if name == "merge":
            tables.check()
    tables.check()


def _kill(words: list[str], config: Path, root: Path, random_: Random) -> bool:
    """Run a command to a death soon after its first write; False if it was done before."""
    before = _files(root / "warehouse")
    program = "from tideline_console.app import app; app()"
    command = [sys.executable, "-c", program, *words, "--config", str(config)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, cwd=_REPOSITORY, start_new_session=True, stdout=quiet, stderr=quiet
    )
    deadline = time.monotonic() + _PATIENCE_S
    while process.poll() is None and _files(root / "warehouse") == before:
        assert time.monotonic() < deadline, f"{words} writes nothing"
        time.sleep(0.02)
    time.sleep(random_.uniform(0, _KILLED_WITHIN_S))
    ended = process.poll() is not None
    if not ended:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return not ended


def _files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def _config(tables: EveryMode) -> Path:
    settings = tables.history.settings
    values = {
        "pipeline": settings.pipeline,
        "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
        "store": {"url": settings.store.url},
        "warehouse": {"url": settings.warehouse.url},
        "merge": {"driver_memory": "1g"},
        "tables": tables.settings,
    }
    path = tables.root.parent / "tideline.toml"
    path.write_text(as_toml(values))
    return path


@contextmanager
def _spark(scratch: Path) -> Iterator[SparkSession]:
    from tideline_spark.session import make_session

    os.environ["JAVA_HOME"] = str(java_home())
    session = make_session(
        master="local[2]",
        driver_memory="1g",
        jars=delta_jars(),
        app_name="tideline-faults",
        scratch=scratch,
        java_options="-XX:+UseSerialGC",
    )
    try:
        yield session
    finally:
        session.stop()
