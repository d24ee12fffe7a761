"""Brings one table of a plan to its end, in one commit.

In order: the target's applied number decides (at or past b: nothing to do; not a: refused), the
commits by others since ours are looked through, every part is counted against the plan, the schema
steps are taken, content and number move in one commit, and the number is read back.

Invariants: nothing is committed unless every part held what its manifest says; whatever is killed
or raced, the plan's rows are applied once; an error names no row's value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import parts
from spark_jobs.failures import SparkFailure, explain, is_conflict
from spark_jobs.files import spark_path
from spark_jobs.fill import fill_moved, initial_rows, twins
from spark_jobs.fold import Shape, fold
from spark_jobs.formats.delta import DeltaTable, SinceOurs, Snapshot
from spark_jobs.pending import Keys, pending_rows
from spark_jobs.schemas import schema_steps
from spark_jobs.statement import delete_statement, key_bounds, merge_statement
from tideline.contract.errors import (
    CorruptData,
    InvariantBroken,
    Misconfigured,
    TidelineError,
    Unavailable,
)
from tideline.contract.plan import Plan, Stamp, TablePlan
from tideline.contract.receipt import Outcome, TableReceipt

BEFORE_COMMIT = "before-commit"
AFTER_COMMIT = "after-commit"

_VIEW = "tideline_changes"
_TWINS = "tideline_twins"
_UNPROVEN_MAX = 20


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a run counted."""

    read: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    pending: int = 0
    pending_keys: Keys = ()


class TableRun:
    """One table of one plan, in a session of its own: transaction ids are session settings."""

    def __init__(
        self, spark: SparkSession, plan: Plan, table: TablePlan, on_point: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._table = table
        self._session = spark.newSession()
        self._target = DeltaTable(self._session, spark_path(table.target))
        self._on_point = on_point
        self._version: int | None = None

    def run(self, retries_max: int) -> TableReceipt:
        """The table's receipt, whatever happens; a lost race is run again from the start."""
        began = time.monotonic()
        for attempt in range(1 + retries_max):
            try:
                receipt = self._attempt()
                break
            except TidelineError as error:
                receipt = self._failed(error)
                break
            except SparkFailure as error:
                receipt = self._failed(explain(error, f"merging {self._table.table}"))
                if not is_conflict(error) or attempt == retries_max:
                    break
        return _with_seconds(receipt, time.monotonic() - began)

    def _attempt(self) -> TableReceipt:
        table = self._table
        snapshot = self._target.snapshot()
        self._check_owner(snapshot)
        applied = snapshot.applied.get(table.app_id)
        if applied is not None and applied >= table.b:
            return self._already(snapshot.version, applied)
        since = self._since_ours(snapshot)
        if not self._begins_here(snapshot, applied):
            return self._refused(snapshot, applied)
        if since.went_back and (table.floor is None or table.floor < table.a_seq):
            raise CorruptData(
                f"the target of {table.table} was set back behind what is applied (RESTORE)",
                hint=f"run `tideline dump {table.table}` and merge again",
            )
        read = parts.check_parts(self._session, self._plan.store_url, table)
        stamp = self._stamp(since)
        counts = self._commit(snapshot, stamp, _unproven(since))
        version = self._target.newest()
        number = self._target.committed_number(table.app_id)
        if number is None or number < table.b:
            raise InvariantBroken(
                f"{table.table} stands at manifest {number} after a commit of {table.b}"
            )
        if counts is None:
            return self._already(version, number)
        rows = _Rows(read, *counts, *(self._pending() if stamp.pending else (0, ())))
        return self._applied(version, rows, since.foreign)

    def _check_owner(self, snapshot: Snapshot) -> None:
        if not snapshot.exists:
            return
        ours = {
            "tideline.pipeline": self._plan.pipeline,
            "tideline.incarnation": self._plan.incarnation,
            "tideline.table": self._table.table,
        }
        if any(snapshot.properties.get(name) != value for name, value in ours.items()):
            raise Misconfigured(
                f"the table at {self._table.target} is not this pipeline's {self._table.table}",
                hint="remove or move it to have it built anew, or name another warehouse.url",
            )

    def _begins_here(self, snapshot: Snapshot, applied: int | None) -> bool:
        if self._table.create:
            return applied is None and snapshot.exists == self._table.replace
        return applied == self._table.a

    def _since_ours(self, snapshot: Snapshot) -> SinceOurs:
        if not snapshot.exists or self._table.create:
            return SinceOurs()
        return self._target.since_ours(snapshot.version, self._table.app_id)

    def _stamp(self, since: SinceOurs) -> Stamp:
        """What this commit says of itself.

        Changes by others stay said until a full dump that began after they were found is merged.
        """
        table, before = self._table, since.stamp
        unproven, found_at = _unproven(since), table.a_seq if since.foreign else 0
        pending = parts.has_unchanged(table)
        if before is not None:
            found_at = max(found_at, before.unproven_seq)
            pending = pending or (before.pending and table.floor is None)
        if table.floor is not None and table.floor >= found_at:
            unproven, found_at = (), 0
        return Stamp(
            app_id=table.app_id,
            pipeline=self._plan.pipeline,
            incarnation=self._plan.incarnation,
            plan_id=self._plan.plan_id,
            a=table.a,
            b=table.b,
            seq=table.b_seq,
            complete_through_us=table.complete_through_us,
            unproven=unproven,
            unproven_seq=found_at,
            pending=pending,
        )

    def _commit(
        self, snapshot: Snapshot, stamp: Stamp, damage: tuple[str, ...]
    ) -> tuple[int, int, int] | None:
        """Fold and commit; rows inserted, updated, deleted, or None when another run was first."""
        table = self._table
        changes = parts.read_changes(self._session, self._plan.store_url, table)
        fillable = parts.fillable_columns(changes, table)
        shape = Shape(
            schema=table.schema,
            moved=parts.has_moves(table),
            fillable=fillable,
            truncate=max(table.truncates, default=None),
            floor=table.floor,
        )
        folded = fold(changes, shape)
        if table.create:
            initial_rows(folded, shape).createOrReplaceTempView(_VIEW)
            self._on_point(BEFORE_COMMIT)
            written = self._target.create(_VIEW, table, stamp)
            counts = None if written is None else (written, 0, 0)
        else:
            self._target.evolve(schema_steps(snapshot.schema, table.schema), snapshot)
            if shape.moved and fillable:
                folded = fill_moved(folded, self._session.table(self._target.name), shape)
            if damage and parts.has_dump(table):
                self._drop_twins(folded, shape, msgspec.structs.replace(stamp, unproven=damage))
            folded.createOrReplaceTempView(_VIEW)
            dropped = [name for name in table.dropped if name in snapshot.schema.names]
            statement = merge_statement(table, self._target.name, _VIEW, fillable, dropped)
            self._on_point(BEFORE_COMMIT)
            counts = _counts(self._target.merge(statement, stamp))
        self._on_point(AFTER_COMMIT)
        return counts

    def _drop_twins(self, folded: DataFrame, shape: Shape, stamp: Stamp) -> None:
        """Delete keys that a damaged target holds twice; this plan's MERGE writes them again.

        A commit of its own that moves no number: killed after it, the plan is run again.
        """
        target = self._session.table(self._target.name)
        for bound in key_bounds(self._table):
            target = target.where(bound)
        found = twins(folded, target, shape)
        if found.isEmpty():
            return
        found.createOrReplaceTempView(_TWINS)
        self._target.repair(
            delete_statement(self._table, self._target.name, _TWINS),
            msgspec.structs.replace(
                stamp,
                b=self._table.a,
                seq=self._table.a_seq,
                unproven_seq=self._table.a_seq,
                complete_through_us=None,
            ),
        )

    def _pending(self) -> tuple[int, Keys]:
        return pending_rows(self._session.table(self._target.name), self._table.schema)

    def _applied(self, version: int, rows: _Rows, foreign: tuple[str, ...]) -> TableReceipt:
        return TableReceipt(
            table=self._table.table,
            outcome=Outcome.APPLIED,
            applied_manifest=self._table.b,
            applied_seq=self._table.b_seq,
            complete_through_us=self._table.complete_through_us,
            target_version=version,
            rows_read=rows.read,
            inserted=rows.inserted,
            updated=rows.updated,
            deleted=rows.deleted,
            pending=rows.pending,
            pending_keys=rows.pending_keys,
            foreign_changes=foreign,
        )

    def _already(self, version: int, applied: int) -> TableReceipt:
        """Another run was first; how far it came is in its stamp."""
        stamp = self._target.since_ours(version, self._table.app_id).stamp
        count, keys = self._pending() if stamp is not None and stamp.pending else (0, ())
        return TableReceipt(
            table=self._table.table,
            outcome=Outcome.ALREADY_APPLIED,
            applied_manifest=applied,
            applied_seq=self._table.b_seq if stamp is None else stamp.seq,
            complete_through_us=(
                self._table.complete_through_us if stamp is None else stamp.complete_through_us
            ),
            target_version=version,
            pending=count,
            pending_keys=keys,
        )

    def _refused(self, snapshot: Snapshot, applied: int | None) -> TableReceipt:
        stands = "holds nothing of ours" if applied is None else f"stands at manifest {applied}"
        return TableReceipt(
            table=self._table.table,
            outcome=Outcome.REFUSED,
            applied_manifest=applied or 0,
            applied_seq=0,
            target_version=snapshot.version if snapshot.exists else None,
            error=f"the plan begins at manifest {self._table.a}, the target {stands}",
            error_kind=Unavailable.__name__,
            hint="plan anew: another run was faster, or the target was replaced",
        )

    def _failed(self, error: TidelineError) -> TableReceipt:
        return TableReceipt(
            table=self._table.table,
            outcome=Outcome.FAILED,
            applied_manifest=self._table.a,
            applied_seq=self._table.a_seq,
            error=error.message,
            error_kind=type(error).__name__,
            hint=error.hint,
        )


def _unproven(since: SinceOurs) -> tuple[str, ...]:
    """What others have changed that no full dump has healed so far."""
    earlier = () if since.stamp is None else since.stamp.unproven
    return (*earlier, *since.foreign)[-_UNPROVEN_MAX:]


def _counts(merged: Mapping[str, int] | None) -> tuple[int, int, int] | None:
    if merged is None:
        return None
    names = ("num_inserted_rows", "num_updated_rows", "num_deleted_rows")
    inserted, updated, deleted = (merged[name] for name in names)
    return inserted, updated, deleted


def _with_seconds(receipt: TableReceipt, seconds: float) -> TableReceipt:
    return msgspec.structs.replace(receipt, seconds=round(seconds, 3))
