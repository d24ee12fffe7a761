"""What a mode of keeping a table has to do, and what it is given for it.

`table_run` checks the target and the parts, takes the schema's steps and reads the changes; a mode
makes one commit of them that moves content and number together; `table_run` then reads the number
back. So whatever a mode does is safe to be killed, repeated or raced, as long as it commits once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession

from tideline.contract.evolution import AS_THE_SOURCE, TargetColumns
from tideline.contract.plan import Stamp, TablePlan
from tideline_spark.formats.delta import DeltaTable
from tideline_spark.formats.delta_version import Snapshot

Counts = tuple[int, int, int]
"""Rows inserted, updated and deleted."""


@dataclass(frozen=True, slots=True)
class Work:
    """One table of a plan, made ready for its commit.

    ``changes`` is what `parts.read_changes` gives. ``table.schema`` has the target's
    columns, which ``snapshot`` has too (of a table that exists). ``damage`` names changes by others
    that are not healed. ``before_commit`` is to be called right before the statement that commits.
    ``stands``: how the target's columns are other than the source's. ``local``: the changes lie in
    the driver, and are the same whenever they are read.
    """

    table: TablePlan
    session: SparkSession
    target: DeltaTable
    snapshot: Snapshot
    stamp: Stamp
    changes: DataFrame
    damage: tuple[str, ...]
    before_commit: Callable[[], None]
    stands: TargetColumns = AS_THE_SOURCE
    local: bool = False

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns that only the target has; a row that is written again keeps their values, and no
        value of them is ever asked for."""
        return tuple(name for name, kept in self.stands.kept.items() if kept.carried)


class Overtaken(Exception):
    """Another run has moved the target while this one was getting ready: begin again."""


class TableMode(Protocol):
    """One way of keeping a table. ``pends``: values that no change carries are asked for."""

    @property
    def pends(self) -> bool: ...

    def commit(self, work: Work) -> Counts | None:
        """Bring the target from ``a`` to ``b`` in one commit of ``work.stamp``: a new table where
        ``work.table.create`` says so. None when Delta skipped it, because another run was first.
        """
        ...

    def live(self) -> Column:
        """Which rows of the target stand for a row that the source has now."""
        ...


def made(written: int | None) -> Counts | None:
    """The counts of a commit that wrote rows and changed none; None when Delta skipped it."""
    return None if written is None else (written, 0, 0)


def merged(rows: Mapping[str, int] | None) -> Counts | None:
    """The counts that a MERGE answers with."""
    if rows is None:
        return None
    names = ("num_inserted_rows", "num_updated_rows", "num_deleted_rows")
    inserted, updated, deleted = (rows[name] for name in names)
    return inserted, updated, deleted
