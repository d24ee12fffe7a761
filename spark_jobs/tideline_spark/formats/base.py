"""The interface to a table format: the operations that jobs use on a target, and their results.

A commit of ours carries the app id and the number of the manifest that it brings the target to, and
a `CommitMetadata`. Data and number move in that one commit. A commit whose number is not above the
table's applied one is skipped, and reports that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession, types

from tideline.contract.external_commits import SinceOurs, TableCommit
from tideline.contract.maintenance import Decision, Files, Thresholds
from tideline.contract.plan import CommitMetadata, TablePlan
from tideline.contract.table_layout import NO_LAYOUT, TableLayout
from tideline_spark.formats.state import RowCounts, TableWords, TargetSnapshot, TargetVersion
from tideline_spark.formats.statements import RowMerge, RowUpdate

Shaped = tuple[str, str | None, types.StructField | None]
"""A column after a change: its name, and its present name, or None and the column to make."""


class TargetSchema(Protocol):
    """The columns of a target."""

    def prepare(
        self,
        snapshot: TargetSnapshot,
        *,
        mapping: bool,
        widening: bool,
        added: Sequence[types.StructField],
        without: Collection[str] = (),
    ) -> None:
        """Enable table features that later commits need; each excludes older readers, and stays.

        ``mapping``: columns are renamed, dropped or emptied; ``widening``: they get wider types.
        Raises Misconfigured for a feature in ``without``, which is not switched on.
        """
        ...

    def widen(self, columns: Mapping[str, types.DataType], commit_metadata: CommitMetadata) -> None:
        """Give columns wider types; every value stays. May be repeated.

        ``commit_metadata`` is for a commit that has to write rows for it.
        """
        ...

    def reshape(
        self,
        columns: Sequence[Shaped],
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
    ) -> None:
        """Make ``columns`` the table's, in this order, and set ``properties``, in one commit.

        A commit since the table was read that changes columns or properties is a conflict.
        """
        ...

    def refill(
        self, update: RowUpdate, commit_metadata: CommitMetadata, app: str, number: int
    ) -> None:
        """Run an update once: it is skipped when the app id ``app`` is at ``number``."""
        ...


class TargetDescription(Protocol):
    """The description of a target: comments and NOT NULL columns."""

    def words(self) -> TableWords:
        """Return the newest version's description."""
        ...

    def rewrite(self, change: Callable[[TableWords], TableWords]) -> bool:
        """Apply ``change`` to the table's description; return whether that changed it.

        One commit. A commit since that changes columns or properties is a conflict. One that
        brought rows is not: then only columns that were NOT NULL before stay so, and the
        description is left to be decided again.
        """
        ...

    def without_null(self, columns: Collection[str]) -> frozenset[str]:
        """Return those of ``columns`` in which no row holds NULL."""
        ...


class TargetFiles(Protocol):
    """The files of a target. Sets the session's settings: the session must be the target's own."""

    def measure(self, thresholds: Thresholds) -> Files:
        """Measure the newest version's files."""
        ...

    def rewrite(self, thresholds: Thresholds, decision: Decision) -> None:
        """Rewrite files as decided; no commit of it changes data."""
        ...

    def vacuum(self, hours: float) -> int:
        """Remove files that no version younger than ``hours`` needs; return how many.

        Raises Misconfigured below `VACUUM_HOURS_MIN`.
        """
        ...


class Target(Protocol):
    """One table by its address, through its own Spark session; made and used in one thread.

    A conflict with another writer's commit is a Spark failure that the format's ``conflicts`` name
    (`failures.is_conflict`).
    """

    @property
    def schema(self) -> TargetSchema: ...

    @property
    def description(self) -> TargetDescription: ...

    @property
    def files(self) -> TargetFiles: ...

    @property
    def bytes_billed(self) -> int:
        """The bytes that the warehouse has billed for what was done through this object; 0 of a
        format whose warehouse bills none."""
        ...

    def look(self) -> TargetVersion:
        """Look up the table's newest version."""
        ...

    def snapshot(self) -> TargetSnapshot:
        """Return the newest version of the table, read in full."""
        ...

    def newest(self) -> int:
        """Return the table's present version, -1 without a table."""
        ...

    def rows(self, version: int | None = None) -> DataFrame:
        """Return the rows of ``version``, or of the newest one."""
        ...

    def rows_of(
        self, columns: Sequence[str], where: Sequence[str], among: DataFrame | None = None
    ) -> DataFrame:
        """Return ``columns`` of the newest version's rows that satisfy each condition of ``where``,
        in Spark's SQL; with ``among`` of those alone that agree with one of its rows in all of its
        columns, of which none is NULL there.

        For a few rows of a large table: a format that cannot be read where Spark is looks for them
        itself.
        """
        ...

    def commits(self, version: int) -> Iterator[TableCommit]:
        """Yield commits from ``version`` back, as far as the log and `COMMITS_MAX` reach.

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
        commit_metadata: CommitMetadata,
        layout: TableLayout = NO_LAYOUT,
    ) -> RowCounts | None:
        """Make the table, or replace it if the plan says so, from the rows of ``view``; one commit.

        None when the commit was skipped as already applied. Raises Misconfigured where something
        else lies at the table's path.
        """
        ...

    def merge(
        self, rows: RowMerge, commit_metadata: CommitMetadata, *, still: bool = False
    ) -> RowCounts | None:
        """Run one merge as one commit; None when it was skipped as already applied.

        ``still``: repeated reads of its source give the same rows, so that it needs no copy.
        """
        ...

    def overwrite(
        self, rows: DataFrame, covered: str, commit_metadata: CommitMetadata
    ) -> RowCounts | None:
        """Replace all rows that satisfy ``covered`` with ``rows``, in one commit; None when it was
        skipped as already applied. The counts may include other rows that had to be rewritten.
        """
        ...

    def replace(
        self,
        view: str,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
        layout: TableLayout,
        *,
        vectors: bool | None = None,
    ) -> int | None:
        """Replace all that the table has, if there is one, with the rows of ``view`` and
        ``properties``, in one commit. Returns its version, or None when it was skipped as already
        applied. ``vectors``: whether files may have deletion vectors, where the format knows them;
        None: as ``properties`` have it.
        """
        ...

    def properties_after_swap(
        self,
        live: Mapping[str, str],
        rebuilt: Mapping[str, str],
        without: Collection[str] = (),
    ) -> dict[str, str]:
        """Return the live table's properties for the rebuilt one's rows, except our own: those that
        others have set on it, and those that the format needs for the new rows. ``without``:
        features that only the live table's old rows needed are given up."""
        ...

    def repair(self, rows: RowMerge, commit_metadata: CommitMetadata) -> None:
        """Run a merge whose commit is marked as ours and moves no number."""
        ...

    def remove(self) -> None:
        """Remove the table with its files; do nothing without one."""
        ...

    def drop_versions(self, seen: TargetVersion) -> None:
        """Drop former versions where the table, as it was ``seen`` after a commit, has more than
        its format bears well. No file is removed that `TargetFiles.vacuum` would leave."""
        ...

    def set_property(self, name: str, value: str | None) -> None:
        """Set or (None) remove a property, in a commit of nothing else."""
        ...

    def admit_readers(self, without: Collection[str] = ()) -> bool:
        """Drop reader features that the table no longer uses, deletion vectors and those in
        ``without``; return whether there were any. Files are rewritten where it needs that.
        """
        ...


@runtime_checkable
class StreamedTarget(Protocol):
    """A target whose table may be one that a stream of changes writes (`TableLayout.streamed`)."""

    def stream(self, rows: DataFrame, commit_metadata: CommitMetadata) -> RowCounts | None:
        """Bring ``rows`` to the table, one for each key, and then commit the number. None when it
        was skipped as already applied.

        A row has the table's columns, whether it is to go (`GONE`) and its number in the order of
        the changes of its key (`SEQUENCE_NUMBER`): of one key that with the highest number counts,
        whenever it comes. Readers may see rows before the number is committed. What counts as
        inserted or updated is not known: rows that stay count as updated.
        """
        ...


@dataclass(frozen=True, slots=True)
class TableFormat:
    """One table format. ``open`` makes a target of a table's url.

    ``marker``: the setting that a session has if the pipeline has tables of this format; None:
    every session is made for it.

    ``conflicts``: names of Spark failures meaning that another writer was faster;
    ``null_refused``: meaning that a row has NULL in a NOT NULL column. ``settings`` are the Spark
    session's, ``settings_in_s3`` those that it has besides where it reaches S3,
    ``settings_with_jar``, by a jar's name, those where it has that jar; ``java_names``: packages
    that are looked up often (`session.remember`).
    ``check`` raises Misconfigured for a session that lacks what the format needs. ``firm``: columns
    can be declared NOT NULL.
    """

    open: Callable[[SparkSession, str], Target]
    marker: str | None = None
    conflicts: tuple[str, ...] = ()
    null_refused: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    settings_in_s3: Mapping[str, str] = field(default_factory=dict)
    settings_with_jar: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    java_names: tuple[str, ...] = ()
    check: Callable[[SparkSession], None] = lambda session: None
    firm: bool = True

    def used_by(self, settings: Mapping[str, str]) -> bool:
        """Return whether a session with ``settings`` is made for tables of this format."""
        return self.marker is None or self.marker in settings
