# ruff: noqa: S608  statements are made of constants and our own names
"""Stores, sources and warehouses that are restored from backups, in every combination and order.

Each ends equal to its source, or held by name with a cure, and the cure works. What never happens:
that the warehouse is another than the source, and nobody says so.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devtools.demo.compare import read_warehouse
from devtools.services.binlog_server import BinlogServer
from devtools.services.postgres import PostgresServer
from tests.fixtures.capture import Pipeline, PipelineFactory, poll
from tests.fixtures.mysql_servers import Flavour, ServerFactory, make_mysql_database
from tests.fixtures.services import make_database
from tests.fixtures.sources import ConformingSource, MysqlSource, PostgresSource
from tideline.contract.errors import CorruptData, TidelineError
from tideline.contract.layout import table_path
from tideline.contract.manifest import decode_manifest, digest
from tideline.contract.position import PostgresPosition
from tideline.contract.receipt import Outcome, Receipt
from tideline.contract.schema import parse_table
from tideline.planner import applied_state, begin_rebuild, next_step, plan_merge
from tideline.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE, SOURCE, WAREHOUSE = "store", "source", "warehouse"
THINGS = (STORE, SOURCE, WAREHOUSE)
ROUNDS = 3
"""Of changes, between the backup and the loss of what came after it; and after the restore, where
each makes manifests, until the chain has passed what it was."""


@dataclass(slots=True)
class World:
    """A source of its own with a table ``t``, its pipeline and warehouse, and backups of each."""

    source: ConformingSource
    server: PostgresServer | BinlogServer
    shop: Pipeline[Any]
    spark: SparkSession
    changes: int = 0
    refusals: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.source.full_name("t")

    def folder(self, thing: str) -> Path:
        if thing == SOURCE:
            return self.server.data.parent
        settings = self.shop.settings
        url = settings.store.url if thing == STORE else settings.warehouse.url
        return Path(url.removeprefix("file://"))

    def kept(self, thing: str) -> Path:
        return self.folder(thing).with_name(f"{self.folder(thing).name}-backup")

    def change(self) -> None:
        """An insert, an update and a delete; no two are the same, whatever was restored."""
        self.changes += 1
        key, text = 10 * self.changes, uuid.uuid4().hex
        self.source.run(
            f"INSERT INTO t VALUES ({key}, 0, NULL, '{text}'), ({key + 1}, 0, NULL, 'goes')",
            f"UPDATE t SET t = '{text}' WHERE id = 2",
            f"DELETE FROM t WHERE id = {key + 1} OR id = {key - 10}",
        )

    def capture(self) -> bool:
        """Read all there is; False where the worker refuses, which says what to do."""
        worker = self.shop.start(until_idle_s=0.6)
        if worker.wait() == 0:
            return True
        reported = worker.output()
        assert "RESTORE.md" in reported, reported[-3_000:]
        self.refusals.append(reported)
        return False

    def merge(self) -> tuple[str, ...]:
        """Merge all there is; the tables that have strayed. What else is delayed is so by name."""
        settings = self.shop.settings
        plan = plan_merge(settings, plan_id=uuid.uuid4().hex)
        if plan.tables:
            self.judge(self.run(plan))
        for table in plan.strayed:
            assert f"tideline rebuild {table}" in plan.delayed[table]
            status = applied_state(settings).tables[table]
            assert status.reason == plan.delayed[table]
            assert status.complete_through_us is None
        return plan.strayed

    def run(self, plan: Any) -> Receipt:
        from tideline_spark.merge import run_plan  # heavy

        return run_plan(self.spark, plan)

    @staticmethod
    def judge(receipt: Receipt) -> None:
        for one in receipt.tables:
            assert one.outcome is Outcome.APPLIED, (one.error, one.hint)

    def rebuild(self) -> None:
        """What a strayed table's problem names."""
        record = begin_rebuild(self.shop.settings, self.name)
        while (plan := next_step(self.shop.settings, record)) is not None:
            assert not plan.delayed, plan.delayed
            self.judge(self.run(plan))

    def here(self) -> set[tuple[str, ...]]:
        with self.source.session() as cursor:
            cursor.execute("SELECT id, t FROM t")
            return {tuple(str(value) for value in row) for row in cursor.fetchall()}

    def there(self, settings: Settings | None = None) -> set[tuple[str, ...]]:
        url = (settings or self.shop.settings).warehouse.url
        path = table_path(url, parse_table(self.name))
        rows = read_warehouse(path, {}).select(["id", "t"]).to_pylist()
        return {(str(row["id"]), str(row["t"])) for row in rows}

    def back_up(self) -> None:
        """All of it, as of one moment: nothing runs."""
        with self.stopped():
            for thing in THINGS:
                copy(self.folder(thing), self.kept(thing))

    def restore(self, thing: str) -> None:
        """As it was then."""
        if thing == SOURCE:
            with self.stopped():
                copy(self.kept(thing), self.folder(thing))
        else:
            copy(self.kept(thing), self.folder(thing))
            # A session of Spark that stays has the tables' logs as they were; jobs have their own.
            self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.server.stop()
        yield
        self.server.start()

    def restart(self) -> Settings:
        """The cure that is named where the log is lost: another pipeline, which dumps every table,
        and a warehouse of its own."""
        config = self.shop.config
        text = config.read_text().replace(self.shop.settings.pipeline, f"n{uuid.uuid4().hex[:8]}")
        text = text.replace("/warehouse", "/warehouse-anew")
        config.write_text(text)
        self.shop = Pipeline(self.shop.database, config, config.parent)
        self.shop.drain()
        assert self.merge() == ()
        return self.shop.settings

    def mend_chain(self) -> None:
        """What docs/RESTORE.md says where a worker wrote on while the store was restored: without
        any worker, remove the first manifest that does not follow the one before it, and all
        behind it."""
        log = self.folder(STORE) / self.shop.settings.pipeline / "log"
        files = {int(path.stem): path for path in log.glob("*.json")}
        whole, previous = 0, ""
        while whole + 1 in files:
            raw = files[whole + 1].read_bytes()
            if decode_manifest(raw).previous_digest != previous:
                break
            whole, previous = whole + 1, digest(raw)
        for number, path in files.items():
            if number > whole:
                path.unlink()


def copy(origin: Path, to: Path) -> None:
    """Put ``origin`` in the place of ``to``, owners and all. A worker that runs may write there
    meanwhile: what it makes in a directory that is being removed is removed, too."""
    poll("it is removed", lambda: subprocess.run(["rm", "-rf", str(to)]).returncode == 0)
    to.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", f"{origin}/.", str(to)], check=True)


MakeWorld = Callable[[str], World]


@pytest.fixture
def world_of(
    request: pytest.FixtureRequest, pipeline_of: PipelineFactory, spark: SparkSession
) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(kind: str) -> World:
        server: PostgresServer | BinlogServer
        source: ConformingSource
        database: Any
        if kind == "postgres":
            postgres: PostgresServer = request.getfixturevalue("own_postgres")
            server, database = postgres, make_database(postgres)
            source = PostgresSource(database)
        else:
            start: ServerFactory = request.getfixturevalue("start_server")
            flavour: Flavour = kind  # type: ignore[assignment]
            server = start(flavour)
            database = make_mysql_database(server, flavour)
            source = MysqlSource(database, start)
        source.make("t")
        source.run("INSERT INTO t VALUES (1, 0, NULL, 'old'), (2, 0, NULL, 'old')")
        world = World(source, server, pipeline_of(database), spark)
        made.append(world)
        return world

    yield make
    for world in made:
        subprocess.run(["rm", "-rf", str(world.kept(SOURCE))], check=True)
        world.shop.close()


def lived(world: World) -> None:
    """A backup, and what came after it."""
    assert world.capture() and world.merge() == ()
    world.back_up()
    for _ in range(ROUNDS):
        world.change()
        assert world.capture()
    assert world.merge() == ()
    assert world.there() == world.here()


def ended(world: World, *, worker_ran: bool = False) -> str:
    """What became of it: ``equal``, or which cure it took to be so."""
    cured = "equal"
    for _ in range(2 * ROUNDS):
        world.change()
        if not world.capture():
            break
    try:
        strayed = world.merge()
    except CorruptData as error:
        assert "RESTORE.md" in (error.hint or ""), error
        strayed, cured = (), "chain"
    if cured == "chain" or (worker_ran and world.refusals and "manifest" in world.refusals[-1]):
        world.mend_chain()
        world.refusals.clear()
        world.change()
        world.capture()
        strayed, cured = world.merge(), "chain"
    if world.refusals:
        world.restart()
        strayed, cured = (), "anew"
    if strayed:
        world.rebuild()
        assert world.merge() == ()
        cured = f"{cured}, rebuilt"
    assert world.there() == world.here()
    return cured


@pytest.mark.parametrize("kind", ["mariadb"])
def test_a_restored_store_makes_no_merge_skip_changes(world_of: MakeWorld, kind: str) -> None:
    """Finding by finding: the chain passes the number that the target has applied."""
    world = world_of(kind)
    lived(world)
    applied = world.shop.manifest().manifest_number
    world.restore(STORE)
    while world.shop.manifest().manifest_number <= applied:
        world.change()
        assert world.capture()
        strayed = world.merge()
        assert strayed == (world.name,), "the numbers say that the target is up to date, or nearly"
    world.rebuild()
    assert world.merge() == ()
    assert world.there() == world.here()


def test_a_plan_from_before_the_restore_is_refused(world_of: MakeWorld) -> None:
    """A job that runs, or waits in a queue, while the store is restored."""
    world = world_of("mariadb")
    lived(world)
    world.change()
    assert world.capture()
    plan = plan_merge(world.shop.settings, plan_id="before")
    assert plan.tables
    world.restore(STORE)
    (refused,) = world.run(plan).tables
    assert refused.outcome is Outcome.REFUSED
    assert "restored from a backup" in (refused.error or "")
    while world.shop.manifest().manifest_number <= plan.to_manifest:
        world.change()
        assert world.capture()
    (refused,) = world.run(plan).tables
    assert refused.outcome is Outcome.REFUSED
    world.rebuild()
    assert world.merge() == ()
    assert world.there() == world.here()


def test_a_restored_source_whose_log_has_passed_the_chain(world_of: MakeWorld) -> None:
    """Its name, its timeline, its slot and its LSNs are as ever, and say nothing."""
    world = world_of("postgres")
    lived(world)
    position = world.shop.manifest().position
    assert isinstance(position, PostgresPosition)
    world.restore(SOURCE)
    with world.source.session() as cursor:
        while True:
            cursor.execute("SELECT pg_current_wal_lsn() - '0/0'")
            if cursor.fetchone()[0] > position.end_lsn:
                break
            world.change()
    assert not world.capture()
    assert "no transaction of the server's log ends at" in world.refusals[-1]
    world.restart()
    assert world.there() == world.here()


def cases() -> Iterator[Any]:
    for running in (False, True):
        for count in (1, 2, 3):
            for order in permutations(THINGS, count):
                for between in (False, True):
                    if not between and (list(order) != sorted(order, key=THINGS.index)):
                        continue  # Nothing happens between: the order does not matter.
                    if between and count == 1:
                        continue
                    words = (*order, *(["between"] * between), *(["running"] * running))
                    yield pytest.param(order, between, running, id="_".join(words))


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", ["postgres", "mariadb", "mysql8", "mysql9"])
@pytest.mark.parametrize(("order", "between", "running"), cases())
def test_every_combination_ends_equal_or_held_by_name(
    world_of: MakeWorld, kind: str, order: tuple[str, ...], between: bool, running: bool
) -> None:
    """``between``: capture and merges go on between two restores. ``running``: a worker runs while
    things are restored under it."""
    world = world_of(kind)
    lived(world)
    worker = world.shop.start() if running else None
    for thing in order:
        world.restore(thing)
        if between:
            world.change()
            if worker is None:
                world.capture()
            with suppress_named():
                world.merge()
    if worker is not None:
        worker.kill()
    assert ended(world, worker_ran=running)


@contextmanager
def suppress_named() -> Iterator[None]:
    """Whatever is raised says what it is and what to do."""
    try:
        yield
    except TidelineError as error:
        assert error.hint, error
