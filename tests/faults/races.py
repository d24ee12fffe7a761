"""Jobs at the same time on the same tables: whoever wins, nothing is lost and nothing is twice.

Whoever loses goes on where the other one left off, or ends with a named error that says so.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.faults.every_mode import KEYED, EveryMode
from tests.faults.jobs import Jobs, unique, verify_plan
from tideline.contract.errors import Fenced, Unavailable
from tideline.contract.maintenance import MaintenanceOutcome
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome, Receipt
from tideline.contract.verification import VerificationOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_S = 240.0
_LOST = (Outcome.REFUSED, Outcome.ALREADY_APPLIED)


def race_merges(spark: SparkSession, tables: EveryMode) -> Counter[str]:
    """Have all of ``tables`` merged, and then `Races.merges`, of which one merges; return the
    counts."""
    Jobs(spark, tables).merge("first")
    counts = Counter[str]()
    Races(spark, tables, counts).merges()
    assert counts["merge applied"] >= 1, counts
    return counts


class Races:
    """``counts``: who won, who lost, and how."""

    def __init__(self, spark: SparkSession, tables: EveryMode, counts: Counter[str]) -> None:
        self.counts = counts
        self._tables = tables
        self._spark = spark

    def merges(self, *names: str) -> None:
        """Two merges (of ``names``), files that are put together, and a verification of the version
        before, which finds no difference. Everything is merged by now."""
        tables, plain = self._tables, Jobs(self._spark, self._tables)
        plan = verify_plan(tables, unique("v"))
        tables.more(16)
        starts = threading.Barrier(2, timeout=_PATIENCE_S)
        merge = [self._merge(starts, *names), self._merge(starts, *names)]
        upkeep = self._maintain(*(name for name in names or KEYED if name in KEYED))
        *_, reported = _together(*merge, upkeep, lambda: plain.verify(plan).outcome)
        assert reported in (VerificationOutcome.EQUAL, VerificationOutcome.NOT_COMPARED), reported
        self.counts[f"verified {reported}"] += 1
        self._ends(plain)

    def rebuilds(self, table: str, mode: Mode) -> None:
        """Two rebuilds of a table, while it is merged and its files are put together. Everything is
        merged by now."""
        tables, plain = self._tables, Jobs(self._spark, self._tables)
        tables.more(16)

        def rebuild() -> None:
            try:
                plain.rebuild(table, mode)
                self.counts["rebuilt"] += 1
            except (Fenced, Unavailable) as lost:
                self.counts[f"rebuild {type(lost).__name__}"] += 1

        starts = threading.Barrier(1)
        _together(rebuild, rebuild, self._merge(starts), self._maintain(*KEYED))
        plain.rebuild(table, mode)
        tables.modes[table] = mode
        self._ends(plain)

    def _ends(self, plain: Jobs) -> None:
        _settled(plain.merge(unique("end")))
        self._tables.check()
        self.counts["races"] += 1

    def _merge(self, starts: threading.Barrier, *names: str) -> Callable[[], None]:
        """A merge of its own plan, which comes to its first commit when the others do."""
        met = threading.Event()

        def meet(point: str) -> None:
            if point == "before-commit" and not met.is_set():
                met.set()
                starts.wait()

        def merge() -> None:
            jobs = Jobs(self._spark, self._tables, meet)
            for one in jobs.merge(unique("raced"), *names).tables:
                self.counts[f"merge {one.outcome.value}"] += 1
                lost = one.outcome in _LOST or one.error_kind == Unavailable.__name__
                assert one.outcome is Outcome.APPLIED or lost, one

        return merge

    def _maintain(self, *names: str) -> Callable[[], None]:
        def maintain() -> None:
            receipt = Jobs(self._spark, self._tables).maintain(unique("m"), *names)
            for one in receipt.tables:
                self.counts[f"maintain {one.outcome.value}"] += 1
                lost = one.error_kind == Unavailable.__name__
                assert one.outcome is not MaintenanceOutcome.FAILED or lost, one

        return maintain


def _together(*jobs: Callable[[], object]) -> list[object]:
    """What each came to."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [one.result(_PATIENCE_S) for one in [pool.submit(job) for job in jobs]]


def _settled(receipt: Receipt, but: Collection[Outcome] = ()) -> None:
    for one in receipt.tables:
        assert one.outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED, *but), one
