"""The long form of the fault tests, and its table of counts: ``python -m tests.faults``.

Rounds alternate between PostgreSQL and MariaDB, each on a fresh database and a fresh pipeline. The
faults are dealt like cards: no source sees one again before it has seen all. The store is on S3; in
every ``SPARK``-th round of a source it is on files, and Spark merges for real after every fault.

Environment: ``ROUNDS`` (how many, default 16, in which each source sees every fault), ``SEED`` (of
the first, default 1), ``FAULTS`` (in one round, default 9), ``SPARK`` (default 0: never, no JVM),
``SOURCE`` (only that one). Behind them come ``JOBS`` rounds (default 4; 0: no JVM) of merges,
rebuilds, maintenance and verifications that die anywhere, are raced, replayed, lack a part or room,
of Delta tables in files and in S3, and of Iceberg tables (`tests.faults.job_rounds`); of each job,
``DEATHS`` (default 3) of its deaths are gone on from.
Exit code 1 when anything promised did not hold, or a round broke off.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools.services.binlog_server import NOT_DURABLE as NOT_DURABLE_BINLOG
from devtools.services.mariadb import MariadbServer
from devtools.services.postgres import NOT_DURABLE, PostgresServer
from devtools.services.s3 import S3Server
from devtools.services.valkey import ValkeyServer
from devtools.simulation.oracle import CHECKS
from tests.faults.rewired import on_s3, port_of
from tests.faults.rounds import BRISK, FAULTS, NEED_S3, Stage, Verdict, play
from tests.faults.s3_faults import S3Faults
from tests.fixtures.capture import Pipeline
from tests.fixtures.mysql_servers import drop_mysql_database, make_mysql_database
from tests.fixtures.services import drop_database, make_database
from tests.fixtures.settings import as_toml
from tests.support.ledger import TABLES, LedgerWork, MariadbLedger, PostgresLedger
from tests.support.proxy import Proxy
from tideline.contract.errors import TidelineError
from tideline.warehouse.s3_jars import find_s3_jar_set

SOURCES = ("postgres", "mariadb")
_SHOWN = 20
_TERMINATED = 143
_BUSY_S, _CALM_S = 0.005, 0.1
"""A client's pause between transactions. A real merge takes its time, and nobody captures then."""


@dataclass(frozen=True, slots=True)
class Servers:
    """What all rounds share."""

    folder: Path
    postgres: PostgresServer
    mariadb: MariadbServer
    valkey: ValkeyServer
    s3: S3Server


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for."""

    rounds: int
    seed: int
    faults: int
    spark_every: int
    sources: Sequence[str]
    jobs: int
    deaths: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Wish:
        source = environment.get("SOURCE")
        return cls(
            rounds=int(environment.get("ROUNDS") or 16),
            seed=int(environment.get("SEED") or 1),
            faults=int(environment.get("FAULTS") or 9),
            spark_every=int(environment.get("SPARK") or 0),
            sources=(source,) if source else SOURCES,
            jobs=int(environment.get("JOBS") or 4),
            deaths=int(environment.get("DEATHS") or 3),
        )

    def merges_for_real(self, nth: int) -> bool:
        """Whether a source's ``nth`` round, from 0, does."""
        return self.spark_every > 0 and nth % self.spark_every == self.spark_every - 1


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))  # The servers end with it.
    wish = Wish.of(os.environ)
    failed = all_rounds(wish) if wish.rounds else False
    return int(all_jobs(wish) or failed if wish.jobs else failed)


def all_rounds(wish: Wish) -> bool:
    """Of workers and servers; whether anything went wrong."""
    tally = dict[str, Counter[str]]()
    with ExitStack() as stack:
        servers = started(stack)
        hands = {source: dealt(wish.seed) for source in wish.sources}
        for number in range(wish.rounds):
            nth, place = divmod(number, len(wish.sources))
            source, seed = wish.sources[place], wish.seed + number
            names = [next(hands[source]) for _ in range(wish.faults)]
            print(f"round {number + 1}: {source}, seed {seed}: {', '.join(names)}", flush=True)
            counts = tally.setdefault(source, Counter())
            try:
                verdict = one_round(servers, source, seed, names, wish.merges_for_real(nth))
            except (AssertionError, TidelineError) as error:
                counts["broken off"] += 1
                print(f"  broken off: {error}", flush=True)
            else:
                counts.update(verdict.counts)
                counts.update(one.check for one in verdict.violations)
                report(verdict)
    print(table(tally))
    wrong = ("broken off", *CHECKS)
    return any(counts[name] for counts in tally.values() for name in wrong)


def all_jobs(wish: Wish) -> bool:
    """Of the Spark jobs; whether anything went wrong."""
    from tests.faults.job_rounds import play

    counts = Counter[str]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tideline-faults-")))
        server = stack.enter_context(S3Server(folder / "s3")) if find_s3_jar_set() else None
        play(
            wish.jobs,
            counts,
            seed=wish.seed,
            folder=folder,
            recoveries=wish.deaths,
            server=server,
        )
    return bool(counts["broken off"])


def dealt(seed: int) -> Iterator[str]:
    """The names of all faults in a drawn order, and again in another one."""
    random_ = random.Random(seed)
    while True:
        yield from random_.sample(sorted(FAULTS), len(FAULTS))


def report(verdict: Verdict) -> None:
    """What did not hold, and how much there was that did."""
    counts = verdict.counts
    print(f"  {counts['changes']} changes, {counts['merges']} merges, {counts['seconds']} s")
    for one in verdict.violations[:_SHOWN]:
        print(f"  {one}")
    sys.stdout.flush()


def started(stack: ExitStack) -> Servers:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tideline-faults-")))
    folder.chmod(0o755)
    return Servers(
        folder,
        stack.enter_context(PostgresServer(folder / "postgres", settings=NOT_DURABLE)),
        stack.enter_context(MariadbServer(folder / "mariadb", settings=NOT_DURABLE_BINLOG)),
        stack.enter_context(ValkeyServer(folder / "valkey")),
        stack.enter_context(S3Server(folder / "s3")),
    )


def one_round(
    servers: Servers, source: str, seed: int, names: Sequence[str], spark: bool
) -> Verdict:
    begun = time.monotonic()
    with ExitStack() as stack:
        pause_s = _CALM_S if spark else _BUSY_S
        work, server = stack.enter_context(database_of(servers, source, seed, pause_s))
        work.set_up()
        prefix = "public." if source == "postgres" else f"{work.database.name}."
        pipeline = stack.enter_context(pipeline_of(servers, work, prefix, on_files=spark))
        ports = {
            "source": port_of(str(work.database.source["url"])),
            "store": servers.s3.port,
            "control": servers.valkey.port,
        }
        proxies = {name: stack.enter_context(Proxy(port)) for name, port in ports.items()}
        stage = Stage(pipeline, work, prefix, proxies, source=server, queue=servers.valkey)
        stage.spoiler = stack.enter_context(S3Faults(servers.s3))
        if spark:
            from tests.faults.real_merges import RealMerges

            stage.merge = stack.enter_context(RealMerges(pipeline, prefix))
        usable = [name for name in names if not (spark and name in NEED_S3)]
        verdict = play(stage, usable, seed=seed)
    verdict.counts["seconds"] += round(time.monotonic() - begun)
    return verdict


@contextmanager
def database_of(
    servers: Servers, source: str, seed: int, pause_s: float
) -> Iterator[tuple[LedgerWork, Any]]:
    """A fresh database with its traffic, and its server."""
    if source == "postgres":
        postgres = make_database(servers.postgres)
        yield PostgresLedger(postgres, seed=seed, pause_s=pause_s), servers.postgres
        drop_database(servers.postgres, postgres.name)
    else:
        mariadb = make_mysql_database(servers.mariadb, "mariadb")
        yield MariadbLedger(mariadb, seed=seed, pause_s=pause_s), servers.mariadb
        drop_mysql_database(mariadb)


def pipeline_of(
    servers: Servers, work: LedgerWork, prefix: str, *, on_files: bool
) -> Pipeline[Any]:
    """A fresh pipeline of the ledger's tables."""
    folder = servers.folder / f"round-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    files = {"url": (folder / "store").as_uri(), "retry_s": 10.0}
    source = {**work.database.source, "tables": [f"{prefix}{name}" for name in TABLES]}
    values = {
        "pipeline": f"f{uuid.uuid4().hex[:10]}",
        "source": source,
        "store": files if on_files else on_s3(servers.s3),
        "control": {"url": servers.valkey.url()},
        "warehouse": {"url": (folder / "warehouse").as_uri()},
        "capture": dict(BRISK),
    }
    config = folder / "tideline.toml"
    config.write_text(as_toml(values))
    return Pipeline(work.database, config, folder)


COLUMNS = ("runs", "broken off", "changes", "kills", "freezes", "troubles", "merges", "seconds")
PROMISES = {
    "lost": "L",
    "duplicated": "D",
    "time travel": "T",
    "phantom": "P",
    "resurrected": "R",
    "gap": "G",
    "fork": "F",
    "split": "A",
    "value": "V",
    "re-merge": "I",
    "dead": "E",
}


def table(tally: Mapping[str, Counter[str]]) -> str:
    """The counts, a row per source and one for all; then how often each fault was played."""
    total: Counter[str] = Counter()
    for counts in tally.values():
        total.update(counts)
    columns = {**{name: name for name in COLUMNS}, **PROMISES}
    rows = [["", *columns]]
    rows += [
        [name, *(str(counts[key]) for key in columns.values())]
        for name, counts in {**tally, "all": total}.items()
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(r, widths, strict=True)) for r in rows]
    played = [f"{total[name]:5}  {name}" for name in FAULTS]
    return "\n".join([*lines, "", "times played:", *played])
