"""What goes wrong around a job: parts that are gone, torn or changed, and disks that are full.

Whatever it is, the table says by a named error what it lacks and what to do, it stands where it
stood, the others go on, and once the trouble is over so does the table.
"""

from __future__ import annotations

import io
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults.every_mode import LOG, EveryMode
from tests.faults.jobs import Jobs, unique, verify_plan
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.verification import VerificationOutcome
from tideline.planner import begin_rebuild, next_step, plan_merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FLIPS_MAX = 10_000
_END = 8
"""Bytes at a Parquet file's end: how long its metadata is, and a magic number."""


def gone(whole: bytes, random_: Random) -> None:
    """Nothing is left of it."""


def torn(whole: bytes, random_: Random) -> bytes:
    return whole[: -random_.randint(1, 60)]


def emptied(whole: bytes, random_: Random) -> bytes:
    return b""


def flipped(whole: bytes, random_: Random) -> bytes:
    """One bit of its pages is another, of those with which it reads as well as before, and says
    something else."""
    pages = len(whole) - _END - int.from_bytes(whole[-_END:-4], "little")
    was = pq.read_table(io.BytesIO(whole))
    for _ in range(_FLIPS_MAX):
        data = bytearray(whole)
        data[random_.randrange(pages)] ^= 1 << random_.randrange(8)
        with suppress(OSError, pa.ArrowException, OverflowError):
            if not pq.read_table(io.BytesIO(bytes(data))).equals(was):
                return bytes(data)
    raise AssertionError("no bit of it matters")


RUINS: Mapping[str, Callable[[bytes, Random], bytes | None]] = {
    "gone": gone,
    "torn": torn,
    "emptied": emptied,
    "flipped": flipped,
}


class Troubles:
    """Troubles of one warehouse; ``counts`` of them, by kind."""

    def __init__(
        self, spark: SparkSession, tables: EveryMode, counts: Counter[str], *, seed: int
    ) -> None:
        self.counts = counts
        self._spark = spark
        self._tables = tables
        self._random = Random(seed)
        self._plain = Jobs(spark, tables)

    def waiting(self, *names: str) -> Plan:
        """A plan of what has changed (of ``names``), which the other troubles meet; `over` ends
        them."""
        self._tables.more(16)
        settings = self._tables.history.settings
        return plan_merge(settings, plan_id=unique("waiting"), tables=names or None)

    def over(self, plan: Plan) -> None:
        """The trouble is over: the plan comes to its end."""
        done = {Outcome.APPLIED, Outcome.ALREADY_APPLIED}
        receipt = self._plain.run(plan)
        assert {one.outcome for one in receipt.tables} <= done, receipt
        self._tables.check()

    def created_before(self, plan_id: str, half_made: str, taken: str) -> None:
        """A run was killed while it made the table ``half_made``, and files of someone else lie
        where ``taken`` is to be made: the one is made, the other is not, and says so."""
        files, killed = self._tables.files, self._tables.target(half_made)
        # Spark makes this folder first; in S3 it is an object of its own.
        files.put(f"{killed}/_delta_log/_staged_commits/.folder", b"")
        files.put(f"{killed}/part-00000-0.snappy.parquet", b"PAR1")
        theirs = f"{self._tables.target(taken)}/theirs.csv"
        files.put(theirs, b"1")
        for one in self._plain.merge(plan_id).tables:
            if one.table != taken:
                assert one.outcome is Outcome.APPLIED, one
                continue
            assert (one.outcome, one.error_kind) == (Outcome.FAILED, "Misconfigured"), one
            assert "remove or move" in (one.hint or ""), one
        assert files.get(theirs) == b"1"
        files.remove(theirs)

    def ruined_parts(self, plan: Plan, ruins: Mapping[str, str]) -> None:
        """A part of each table of ``ruins`` is not what it was; the others go on. One that has the
        plan already needs no part of it. Of a bit that is another comes an error, or the same
        rows."""
        before = self._tables.digests()
        with ExitStack() as stack:
            for table, name in ruins.items():
                stack.enter_context(self._ruined(name, _part(plan, table)))
            receipts = {one.table: one for one in self._plain.run(plan).tables}
        after = self._tables.digests()
        for table, one in receipts.items():
            if table not in ruins:
                assert one.outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED), one
                continue
            if ruins[table] == "flipped" and one.outcome is Outcome.APPLIED:
                self._tables.check(table)  # A bit that Arrow reads, and Spark does not.
                self.counts["flipped for nothing"] += 1
                continue
            assert before[table] == after[table], f"{table} does not stand still: {one}"
            if one.outcome is not Outcome.ALREADY_APPLIED:
                _is_named(one, _part(plan, table))
                self.counts["parts named"] += 1

    def ruined_rebuild(self, name: str) -> None:
        """A part that only a rebuild reads again is not what it was."""
        tables, settings = self._tables, self._tables.history.settings
        before = tables.digest(LOG)
        record = begin_rebuild(settings, LOG, mode=tables.modes[LOG])
        plan = next_step(settings, record)
        assert plan is not None and plan.tables
        part = _part(plan, LOG)
        with self._ruined(name, part):
            (failed,) = self._plain.run(plan).tables
        _is_named(failed, part)
        assert tables.digest(LOG) == before
        self._plain.rebuild(LOG, tables.modes[LOG])
        tables.check()

    def ruined_verification(self, name: str) -> None:
        """A verification part is not what it was: nothing is said of the table."""
        plan = verify_plan(self._tables, unique("v"))
        key = plan.tables[0].chunks[0].key
        assert key is not None
        with self._ruined(name, key):
            result = self._plain.verify(plan)
        assert result.outcome is VerificationOutcome.NOT_COMPARED, result
        assert "CorruptData" in (result.reason or ""), result
        assert key.rpartition("/")[2] in (result.reason or ""), result
        assert result.hint, result
        assert self._plain.verify(plan).outcome is VerificationOutcome.EQUAL

    def full_disk(self, plan: Plan, bytes_max: int) -> None:
        """No file may be larger than that: what Spark writes is cut off in the middle, as on a disk
        without room; it takes no rights to bring about."""
        tables = self._tables
        before = tables.digests()
        with _no_room(self._spark, bytes_max):
            receipts = {one.table: one for one in self._plain.run(plan).tables}
        found = tables.digests()
        for name, one in receipts.items():
            if one.outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED):
                continue
            assert (one.outcome, one.error_kind) == (Outcome.FAILED, "Unavailable"), one
            assert "no room left" in (one.error or ""), one
            assert "make room" in (one.hint or ""), one
            assert found[name] == before[name], f"{name} is torn"
            self.counts["full disk"] += 1

    @contextmanager
    def _ruined(self, name: str, part: str) -> Iterator[None]:
        files, key = self._tables.files, f"store/{part}"
        whole = files.get(key)
        ruin = RUINS[name](whole, self._random)
        if ruin is None:
            files.remove(key)
        else:
            files.put(key, ruin)
        self.counts[name] += 1
        try:
            yield
        finally:
            files.put(key, whole)


def _part(plan: Plan, table: str) -> str:
    (found,) = [one for one in plan.tables if one.table == table]
    return found.parts[0].key


def _is_named(one: TableReceipt, part: str) -> None:
    assert (one.outcome, one.error_kind) == (Outcome.FAILED, "CorruptData"), one
    assert part.rpartition("/")[2] in (one.error or ""), one
    assert "restore" in (one.hint or ""), one


@contextmanager
def _no_room(spark: SparkSession, bytes_max: int) -> Iterator[None]:
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    was = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (bytes_max, was[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, was)
