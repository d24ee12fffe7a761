"""Rounds of the Spark jobs' faults, for the long form: deaths, races, replays, troubles, and kills.

A round is a warehouse of its own, with tables in every mode, that goes through everything once; a
death of each job is taken up several times. Deaths are images (`tests.faults.camera`); *kills* are
SIGKILLs of a `tideline` command's process group while it writes (`tests.faults.kills`).
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal

from devtools.services.s3 import S3Server
from tests.faults.camera import Through
from tests.faults.deaths import Deaths
from tests.faults.every_mode import LOG, PAST, TABLES, EveryMode
from tests.faults.iceberg_tables import iceberg_in
from tests.faults.jobs import Jobs, unique
from tests.faults.kills import At, command, config_of, entry_or_deletion, kill_at, kill_soon
from tests.faults.races import Races
from tests.faults.s3_faults import S3Faults
from tests.faults.troubles import RUINS, Troubles
from tests.fixtures.object_storage import place_in, reach
from tideline.contract.errors import TidelineError
from tideline.contract.modes import Mode
from tideline.java import java_home
from tideline.warehouse.iceberg.jars import iceberg_runs
from tideline.warehouse.iceberg.names import MARKER_SETTING
from tideline.warehouse.job_jars import every_jar
from tideline_spark.failures import SparkFailure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "rounds", "images", "merge", "rebuild", "maintain", "verify", "taken up", "kills", "replays",
    "races", *RUINS, "full disk", "seconds",
)  # fmt: skip
_DISKS = (400, 1_200, 2_000, 3_500)
_HALF_MADE = 0.3
_BROKEN_OFF = "broken off"
_S3, _ICEBERG = "S3", "files, Iceberg tables"


def play(
    rounds: int,
    counts: Counter[str],
    *,
    seed: int,
    folder: Path,
    recoveries: int,
    server: S3Server | None = None,
) -> None:
    """Play so many rounds: of three, one is in S3 if there is a ``server``, and one on Iceberg
    tables if this Spark has them; after each, the counts so far are shown."""
    with ExitStack() as stack:
        spark = stack.enter_context(_spark(folder / "spark"))
        faults = None if server is None else stack.enter_context(S3Faults(server))
        if server is not None and faults is not None:
            reach(spark, place_in(server, endpoint=faults.endpoint))
        for number in range(rounds):
            begun = time.monotonic()
            kind = _kind(number, server)
            print(f"jobs, round {number + 1}: seed {seed + number}", flush=True)
            print(f"  in {kind}", flush=True)
            try:
                in_s3 = server if kind == _S3 else None
                iceberg = kind == _ICEBERG
                root = folder / f"jobs-{number}"
                made = _stage(spark, root, seed + number, in_s3, faults, iceberg=iceberg)
                _round(made, counts, seed + number, recoveries)
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


def _round(stage: _Stage, counts: Counter[str], seed: int, recoveries: int) -> None:
    random_ = Random(seed)
    spark, tables = stage.spark, stage.tables
    tables.fill()
    deaths = Deaths(spark, tables, counts, seed=seed, recoveries=recoveries, through=stage.through)
    races, troubles = Races(spark, tables, counts), Troubles(spark, tables, counts, seed=seed)
    first = unique("first")
    if random_.random() < _HALF_MADE and not tables.iceberg:
        troubles.created_before(first, *random_.sample(TABLES, 2))
    deaths.merge(first)
    tables.more(24, step=True)
    deaths.merge(unique("second"))
    deaths.replay()
    races.merges()
    plan = troubles.waiting()
    for bytes_max in random_.sample(_DISKS, 2 if stage.through is None else 0):
        troubles.full_disk(plan, bytes_max)
    for _ in range(2):
        troubles.ruined_parts(plan, {name: random_.choice(sorted(RUINS)) for name in TABLES})
    troubles.ruined_parts(plan, {random_.choice(TABLES): random_.choice(sorted(RUINS))})
    troubles.over(plan)
    troubles.ruined_rebuild(random_.choice(sorted(RUINS)))
    troubles.ruined_verification(random_.choice(sorted(RUINS)))
    deaths.rebuild()
    deaths.verify()
    _killed(stage, counts, random_)
    deaths.maintain()
    races.rebuilds(PAST, random_.choice((Mode.HISTORY, Mode.CURRENT)))
    deaths.rebuild()


def _killed(stage: _Stage, counts: Counter[str], random_: Random) -> None:
    """The commands are killed for real, and the next run of the job goes on."""
    spark, tables = stage.spark, stage.tables
    tables.more(16, step=True)
    jobs = Jobs(spark, tables)
    mode = tables.modes[LOG]
    every: dict[str, tuple[list[str], Callable[[], object]]] = {
        "merge": (["merge"], lambda: jobs.merge(unique("after"))),
        "rebuild": (["rebuild", LOG, "--mode", mode.value], lambda: jobs.rebuild(LOG, mode)),
        "maintain": (["maintain"], lambda: jobs.maintain(unique("after"))),
    }
    for name, (words, again) in every.items():
        if stage.kill(words, random_):
            counts["kills"] += 1
            counts[f"killed: {name}"] += 1
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        again()
        if name == "merge":
            tables.check()
    tables.check()


@dataclass(frozen=True, slots=True)
class _Stage:
    """A round's tables; ``through`` is Spark's way to them where they are in S3."""

    spark: SparkSession
    tables: EveryMode
    through: Through | None

    def kill(self, words: list[str], random_: Random) -> bool:
        """Run a command to a death while it writes; False if it was done before."""
        if self.through is None:
            return kill_soon(words, self.tables, config_of(self.tables), random_)
        faults = self.through.faults
        assert isinstance(faults, S3Faults)
        config = config_of(self.tables, endpoint=faults.endpoint)
        when: Literal["before", "after"] = random_.choice(("before", "after"))
        at = At(when, "create", "/_delta_log/", random_.randint(1, 4))
        return kill_at(command(words, config), at, faults)


def _kind(number: int, server: S3Server | None) -> str:
    """Where the tables of a round are."""
    if number % 3 == 2 and iceberg_runs():
        return _ICEBERG
    return _S3 if number % 3 == 1 and server is not None else "files"


def _stage(
    spark: SparkSession,
    folder: Path,
    seed: int,
    server: S3Server | None,
    faults: S3Faults | None,
    *,
    iceberg: bool,
) -> _Stage:
    laid_out = bool(seed // 2 % 2)
    if iceberg:
        root = folder / "root"
        tables = EveryMode(root, seed=seed, laid_out=laid_out, place=iceberg_in(spark, root))
        return _Stage(spark, tables, None)
    if server is None or faults is None:
        return _Stage(spark, EveryMode(folder / "root", seed=seed, laid_out=laid_out), None)
    tables = EveryMode(folder / "root", seed=seed, laid_out=laid_out, place=place_in(server))
    return _Stage(spark, tables, Through(faults, entry_or_deletion))


@contextmanager
def _spark(scratch: Path) -> Iterator[SparkSession]:
    from tideline_spark.session import make_session

    os.environ["JAVA_HOME"] = str(java_home())
    session = make_session(
        master="local[2]",
        driver_memory="1g",
        jars=every_jar(),
        app_name="tideline-faults",
        scratch=scratch,
        java_options="-XX:+UseSerialGC",
        others={MARKER_SETTING: "true"} if iceberg_runs() else {},
    )
    try:
        yield session
    finally:
        session.stop()
