"""Jobs that die anywhere: what each death leaves is whole, and the job, run again, ends as one that
was never disturbed.

A job runs to its end while `Camera` takes images: at every named point, and at random moments. Each
image is a death. In every one of them each table must hold what it held before, or what it holds
after, and nothing in between (that is read without Spark). From some of them the job is run again,
to the same end: the same digest of every table, and what the changes alone say it must hold.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from random import Random
from typing import TYPE_CHECKING

from tests.faults.camera import Camera, Image, Through
from tests.faults.every_mode import LOG, NOW, PAST, TABLES, EveryMode
from tests.faults.iceberg_tables import files_of
from tests.faults.jobs import Jobs, unique, verify_plan
from tideline.contract.maintenance import MaintenanceOutcome
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome, Receipt
from tideline.contract.verification import VerificationOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE_S = 0.25
_REBUILT_AS = {
    LOG: (Mode.APPEND, Mode.HISTORY, Mode.CURRENT, Mode.SOFT_DELETES),
    PAST: (Mode.HISTORY, Mode.CURRENT, Mode.APPEND),
}
_LAYOUT = {"partition_by", "cluster_by"}
_DELTA = ("_delta_log", ".json")


class Deaths:
    """One warehouse and its jobs. ``recoveries``: of how many deaths of a job it is taken up;
    ``moments``: at how many random ones it dies at most; ``counts`` of them all, by job."""

    def __init__(
        self,
        spark: SparkSession,
        tables: EveryMode,
        counts: Counter[str],
        *,
        seed: int,
        recoveries: int,
        moments: int = 12,
        through: Through | None = None,
    ) -> None:
        self.tables = tables
        self.counts = counts
        self._spark = spark
        self._random = Random(seed)
        self._recoveries = recoveries
        self._moments = moments
        self._camera = Camera(spark, tables.files, tables.root.parent / "album", through=through)
        self._plain = Jobs(spark, tables)
        self._plans: list[str] = []
        self._rebuilt: set[str] = set()

    def merge(self, plan_id: str, *names: str) -> None:
        """Everything that waits, or what the plan of that name says, which has ``names``. Tables
        whose columns change are several commits."""
        self._plans.append(plan_id)
        changed = {NOW} if self.tables.added else set()
        applied = {Outcome.APPLIED, Outcome.ALREADY_APPLIED}

        def job(jobs: Jobs) -> None:
            _all(jobs.merge(plan_id), applied)

        self._die("merge", job, but=changed, done=names)

    def replay(self) -> None:
        """Every plan so far, in an order of its own: nothing changes, not even a version. A table
        that was rebuilt since refuses it."""
        before, versions = self.tables.digests(), self._versions()
        for plan_id in self._random.sample(self._plans, len(self._plans)):
            for one in self._plain.merge(plan_id).tables:
                refused = one.outcome is Outcome.REFUSED and one.table in self._rebuilt
                assert refused or one.outcome is Outcome.ALREADY_APPLIED, one
            self.counts["replays"] += 1
        assert (self.tables.digests(), self._versions()) == (before, versions)

    def rebuild(self, *, twice: bool = True) -> None:
        """A table in another mode, or in the same once more; and once more without a death."""
        table = self._random.choice(sorted(_REBUILT_AS))
        laid_out = _LAYOUT & self.tables.settings.get(table, {}).keys()
        # A log of changes has a layout of its own, and rebuilding as one is refused.
        modes = [m for m in _REBUILT_AS[table] if not (laid_out and m is Mode.APPEND)]
        mode = self._random.choice(modes)
        was = self.tables.modes[table]
        self._rebuilt.add(table)

        def job(jobs: Jobs) -> None:
            jobs.rebuild(table, mode)
            self.tables.modes[table] = mode

        self._die("rebuild", job, was=lambda: self.tables.modes.update({table: was}))
        again = self.tables.digest(table)
        if twice:
            self._plain.rebuild(table, mode)
        assert self.tables.digest(table) == again, "twice gives the same"
        records = self.tables.files.keys("store/shop/consumers")
        assert not [one for one in records if "rebuild" in one]
        if twice:
            name = self.tables.target(table).removeprefix("warehouse")
            left = [k for k in self.tables.files.keys("warehouse/~rebuild") if f"{name}/" in k]
            assert not left, f"built beside, and left there: {left}"

    def maintain(self, *names: str) -> None:
        """Files (of ``names``) are put together, and what deaths have left is removed once it is
        old."""
        name = unique("upkeep")

        def job(jobs: Jobs) -> None:
            jobs.vacuum_hours = hours
            receipt = jobs.maintain(name, *names)
            failed = [one for one in receipt.tables if one.outcome is MaintenanceOutcome.FAILED]
            assert not failed, failed

        with self.tables.files.aged() as hours:
            self._die("maintain", job, done=names)
        for table in names or TABLES:
            assert self._strays(table) == set(), table

    def verify(self) -> None:
        """`NOW` is proven equal; and while it is damaged it is not, however often it is tried."""
        plan = verify_plan(self.tables, unique("v"))
        self._die("verify", lambda jobs: _is(jobs.verify(plan).outcome, VerificationOutcome.EQUAL))
        self._camera.shoot("equal")
        (equal,) = self._camera.album()
        key = self._random.choice(self.tables.rows(NOW))["id"]
        damage = f"UPDATE {self.tables.sql_name(NOW)} SET a = 'damaged' WHERE id = {key}"  # noqa: S608
        self._spark.newSession().sql(damage)
        plan = verify_plan(self.tables, unique("v"))
        for _ in range(2):
            result = self._plain.verify(plan)
            assert [(one.key, one.columns) for one in result.keys] == [((str(key),), ("a",))], (
                result
            )
        self._camera.restore(equal)
        shutil.rmtree(equal.folder)

    # -- deaths ------------------------------------------------------------------------------------

    def _die(
        self,
        kind: str,
        job: Callable[[Jobs], object],
        *,
        but: Collection[str] = (),
        done: Collection[str] = (),
        was: Callable[[], None] = lambda: None,
    ) -> None:
        """``but``: tables that are changed by several commits; ``done``: those that are merged by
        then (all). ``was`` forgets the job."""
        tables, camera = self.tables, self._camera
        before = tables.digests()
        jobs = Jobs(self._spark, tables, camera.shoot, camera.still)
        with camera.rolling(self._random, images_max=self._moments, pause_s=_PAUSE_S):
            job(jobs)
        after = tables.digests()
        tables.check(*done)
        images = camera.album()
        assert images, "nothing died"
        for image in images:
            _whole(tables, image, before, after, but)
        self.counts["images"] += len(images)
        self.counts[kind] += len(images)
        self.counts[f"{kind} at a request"] += sum(image.request for image in images)
        for image in self._random.sample(images, min(self._recoveries, len(images))):
            was()
            camera.restore(image)
            job(self._plain)
            tables.check(*done)
            found = tables.digests()
            assert found == after, f"another end after {image.moment}: {_unlike(found, after)}"
            self.counts["taken up"] += 1
        for image in images:
            shutil.rmtree(image.folder)

    def _versions(self) -> dict[str, list[str]]:
        """The commits of every table."""
        return {name: self._log(name) for name in TABLES}

    def _log(self, table: str) -> list[str]:
        """A table's versions: the keys of its log, or of an Iceberg table its metadata files."""
        if self.tables.bigquery is not None:
            return self.tables.bigquery.versions(self.tables.history.target(table))
        folder, end = ("metadata", ".metadata.json") if self.tables.iceberg else _DELTA
        found = self.tables.files.keys(f"{self.tables.target(table)}/{folder}")
        return [key for key in found if key.endswith(end)]

    def _strays(self, table: str) -> set[str]:
        """Data files that no commit of the table names, and that are old. Where a table was a
        change log once, Delta does not look into the partitions of then, and neither does this.
        BigQuery has none that a reader sees."""
        if self.tables.bigquery is not None:
            return set()
        files, target = self.tables.files, self.tables.target(table)
        old = [PurePosixPath(key) for key in files.old(target) if key.endswith(".parquet")]
        if self.tables.iceberg:
            held = files_of(
                self.tables.history.settings.warehouse_storage, self.tables.history.target(table)
            )
            return {one.name for one in old} - held
        log = b"\n".join(files.get(key) for key in self._log(table)).decode()
        stray = [one for one in old if one.name.startswith("part-") and one.name not in log]
        is_log = self.tables.modes.get(table) is Mode.APPEND
        return {one.name for one in stray if is_log or str(one.parent) == target}


def _whole(
    tables: EveryMode,
    image: Image,
    before: dict[str, str],
    after: dict[str, str],
    but: Collection[str],
) -> None:
    found = tables.digests(image.folder)
    for name in TABLES:
        if name not in but:
            assert found[name] in (before[name], after[name]), f"{name} is torn at {image.moment}"


def _unlike(found: dict[str, str], after: dict[str, str]) -> list[str]:
    return [name for name in found if found[name] != after[name]]


def _all(receipt: Receipt, outcomes: Collection[Outcome]) -> None:
    assert all(one.outcome in outcomes for one in receipt.tables), receipt


def _is(found: object, wanted: object) -> None:
    assert found is wanted, found
