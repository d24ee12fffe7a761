"""The border to a table format: what jobs ask of a target, and what they know of it then.

A commit of ours carries the app id and the number of the manifest that it brings the target to, and
a `Stamp`. Data and number move in that one commit; a commit whose number is not above the one that
the table has applied is skipped, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession, types

from tideline.contract.external_commits import SinceOurs, TableCommit
from tideline.contract.maintenance import Decision, Files, Thresholds
from tideline.contract.plan import Stamp, TablePlan
from tideline_spark.formats.state import RowCounts, TableWords, TargetSnapshot, TargetVersion
from tideline_spark.formats.statements import RowMerge, RowUpdate

Shaped = tuple[str, str | None, types.StructField | None]
"""A column afterwards: its name; the column that it is now, or None and what is to be made."""


class TargetSchema(Protocol):
    """The columns of a target."""

    def prepare(
        self,
        snapshot: TargetSnapshot,
        *,
        mapping: bool,
        widening: bool,
        added: Sequence[types.StructField],
    ) -> None:
        """Switch on what later commits need; each costs older readers something, and stays.

        ``mapping``: columns are renamed, dropped or emptied; ``widening``: they get wider types.
        """
        ...

    def widen(self, columns: Mapping[str, types.DataType]) -> None:
        """Give columns wider types; every value stays. May be repeated."""
        ...

    def reshape(
        self, columns: Sequence[Shaped], properties: Mapping[str, str], stamp: Stamp
    ) -> None:
        """Make ``columns`` the table's, in this order, and set ``properties``; one commit.

        Another commit since the table was read that changes columns or properties is a conflict.
        """
        ...

    def refill(self, update: RowUpdate, stamp: Stamp, app: str, number: int) -> None:
        """Run an update once: it is skipped when the app id ``app`` is at ``number``."""
        ...


class TargetDescription(Protocol):
    """What a target says of itself."""

    def words(self) -> TableWords:
        """As the newest version has it."""
        ...

    def rewrite(self, change: Callable[[TableWords], TableWords]) -> bool:
        """Have the table say what ``change`` makes of what it says now; whether that is another.

        One commit, by which another one since that changes columns or properties is a conflict. One
        that has brought rows since is not: then no column stays NOT NULL that was not before, and
        what the table is to say is left to be decided again.
        """
        ...

    def without_null(self, columns: Collection[str]) -> frozenset[str]:
        """Those of ``columns`` that no row holds NULL in."""
        ...


class TargetFiles(Protocol):
    """The files of a target. They set the session's settings: it is to be the target's own."""

    def measure(self, thresholds: Thresholds) -> Files:
        """The newest version's files."""
        ...

    def rewrite(self, thresholds: Thresholds, decision: Decision) -> None:
        """Rewrite files as decided; every commit of it changes no data."""
        ...

    def vacuum(self, hours: float) -> int:
        """Remove files that no version needs that is younger than ``hours``; how many.

        Raises Misconfigured below `VACUUM_HOURS_MIN`.
        """
        ...


class Target(Protocol):
    """One table by its address, through a Spark session of its own; made and used in one thread.

    What another writer's commit refuses is a failure of Spark's that the format's ``conflicts``
    name (`failures.is_conflict`).
    """

    @property
    def schema(self) -> TargetSchema: ...

    @property
    def description(self) -> TargetDescription: ...

    @property
    def files(self) -> TargetFiles: ...

    def look(self) -> TargetVersion:
        """The table's newest version."""
        ...

    def snapshot(self) -> TargetSnapshot:
        """The newest version of the table, with all that is known of it."""
        ...

    def newest(self) -> int:
        """The table's version now, -1 where no table is."""
        ...

    def rows(self, version: int | None = None) -> DataFrame:
        """The rows of ``version``, or of the newest one."""
        ...

    def commits(self, version: int) -> Iterator[TableCommit]:
        """Commits from ``version`` back, as far as the log and `COMMITS_MAX` reach.

        Raises CorruptData for a damaged one.
        """
        ...

    def since_ours(self, commits: Iterable[TableCommit], app_id: str) -> SinceOurs:
        """Look back through ``commits``, newest first, to the last one that carries ``app_id``."""
        ...

    def create(
        self,
        view: str,
        plan: TablePlan,
        properties: Mapping[str, str],
        stamp: Stamp,
        partitions: Sequence[str] = (),
    ) -> RowCounts | None:
        """Make the table, or replace it if the plan says so, from the rows of ``view``; one commit.

        None when the commit was skipped as applied before. Raises Misconfigured where something
        else lies at the table's place.
        """
        ...

    def merge(self, rows: RowMerge, stamp: Stamp, *, still: bool = False) -> RowCounts | None:
        """Run one merge as one commit; None when it was skipped as applied before.

        ``still``: however often its source is read, it is the same, so that it needs no copy.
        """
        ...

    def overwrite(self, rows: DataFrame, covered: str, stamp: Stamp) -> RowCounts | None:
        """Put ``rows`` in the place of all rows that ``covered`` is true of; one commit, or None
        when it was skipped as applied before. Rows that had to be written again beside them may
        be counted, too.
        """
        ...

    def replace(
        self, view: str, properties: Mapping[str, str], stamp: Stamp, partitions: Sequence[str]
    ) -> int | None:
        """Put the rows of ``view``, and ``properties``, in the place of all that the table has; one
        commit. Returns its version, or None when it was skipped as applied before.
        """
        ...

    def properties_after_swap(
        self, live: Mapping[str, str], rebuilt: Mapping[str, str]
    ) -> dict[str, str]:
        """The live table's properties once the rebuilt one's rows are in it, but for our own: what
        others have set on it, and what the format needs for the new rows."""
        ...

    def repair(self, rows: RowMerge, stamp: Stamp) -> None:
        """Run a merge whose commit is known as ours and moves no number."""
        ...

    def set_property(self, name: str, value: str | None) -> None:
        """Set or (None) remove a property, in a commit that says nothing else."""
        ...

    def admit_readers(self) -> bool:
        """Stop asking readers for features that the table does not use any more; whether it did.

        Nothing is read or written but the log.
        """
        ...


@dataclass(frozen=True, slots=True)
class TableFormat:
    """One table format. ``open`` makes a target of a path, as Spark takes it.

    ``conflicts``: names by which a failure of Spark's says that another writer was faster;
    ``null_refused``: that a row has no value in a column that is NOT NULL. ``settings`` are the
    Spark session's; ``java_names``: packages that are looked up often (`session.remember`).
    ``check`` raises Misconfigured for a session that lacks what the format needs.
    """

    open: Callable[[SparkSession, str], Target]
    conflicts: tuple[str, ...] = ()
    null_refused: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    java_names: tuple[str, ...] = ()
    check: Callable[[SparkSession], None] = lambda session: None
