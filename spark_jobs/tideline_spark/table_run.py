"""Brings one table of a plan to its end, in one commit.

In order: the target's applied number decides (at or past the plan's end: nothing to do; not
at its start: refused), the
commits by others since ours are inspected, every part is counted against the plan, the schema
steps are taken, content and number move in one commit, and the number is read back.

Invariants: nothing is committed unless every part matched its manifest; the plan's rows are applied
once even when runs are killed or raced; an error names no row's value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from pyspark.sql import DataFrame, SparkSession

from tideline.contract.errors import InvariantBroken
from tideline.contract.evolution import TargetColumns
from tideline.contract.external_commits import SinceOurs, external_before, external_since
from tideline.contract.lineage import column_lineage
from tideline.contract.partition_fields import PartitionField
from tideline.contract.plan import CommitMetadata, Plan, TablePlan
from tideline.contract.receipt import ColumnLineage, Outcome, TableReceipt
from tideline.contract.table_layout import TableLayout
from tideline_spark import parts
from tideline_spark.attempts import Overtaken, Patience
from tideline_spark.commit_metadata import commit_metadata_of, note, unhealed
from tideline_spark.describe import declare_again, describe, give_way, loosen
from tideline_spark.failures import SparkFailure, is_null_refused, unexpected
from tideline_spark.formats.registry import open_target
from tideline_spark.formats.state import RowCounts, TableWords, TargetSnapshot, TargetVersion
from tideline_spark.local_parts import LocalParts, is_small, read_local, tune
from tideline_spark.modes import mode_of
from tideline_spark.modes.base import Work
from tideline_spark.partition_values import kept_values, partitions_of
from tideline_spark.pending import Keys, pending_rows
from tideline_spark.plan_checks import (
    astray,
    check_mode,
    check_not_set_back,
    check_owner,
    rowless_commit_metadata,
    starts_here,
)
from tideline_spark.planned_manifests import PlannedManifests
from tideline_spark.table_receipts import RowFigures, applied_by_us, failed, receipt_of, refused
from tideline_spark.target_columns import Ready, bring_along, ready_to_create
from tideline_spark.timeliness import measure

BEFORE_COMMIT = "before-commit"
AFTER_COMMIT = "after-commit"


class TableRun:
    """One table of one plan, in its own session: transaction ids are session settings."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        table: TablePlan,
        on_point: Callable[[str], None],
        planned_manifests: PlannedManifests,
    ) -> None:
        self._made_from = planned_manifests
        self._plan = plan
        self._table = table
        self._session = spark.newSession()
        self._target = open_target(self._session, table.target)
        self._on_point = on_point
        self._local: LocalParts | None = None
        self._gave_way: TableWords | None = None
        self._external: tuple[str, ...] = ()
        self._described = next((d for d in plan.descriptions if d.target == table.target), None)
        self._lineage: tuple[ColumnLineage, ...] = ()

    def run(self, patience: Patience) -> TableReceipt:
        """Merge and return the table's receipt: see `receipt_of`."""
        table = self._table
        failure = partial(failed, table)
        receipt = receipt_of(self._attempt, failure, patience, f"merging {table.table}")
        return msgspec.structs.replace(receipt, bytes_billed=self._target.bytes_billed)

    def _attempt(self) -> TableReceipt:
        table = self._table
        seen = self._target.look()
        self._seen = seen.number
        tune(self._session, table, seen)
        snapshot = seen.snapshot()
        if snapshot.exists:
            owner = (self._plan.pipeline, self._plan.incarnation, table.table)
            check_owner(snapshot.properties, owner, table.target)
        applied = snapshot.applied.get(table.app_id)
        since = self._since_ours(seen, applied)
        self._external = since.external
        lost = self._made_from.lost(table.to_manifest, table.to_digest) or astray(
            table, applied, since
        )
        if lost is not None:
            return refused(table, snapshot, applied, lost)
        if applied is not None and applied >= table.to_manifest:
            return self._already(seen, applied)
        if not starts_here(table, snapshot, applied):
            return refused(table, snapshot, applied)
        check_mode(table, snapshot)
        check_not_set_back(table, since)
        checked = self._read_parts()
        if self._described is not None and snapshot.exists and not table.create:
            loosen(self._target, self._described)
        commit_metadata = commit_metadata_of(self._plan, table, snapshot, since)
        try:
            counts = self._commit(snapshot, commit_metadata, since)
        except SparkFailure as error:
            if not is_null_refused(error):
                raise
            before = give_way(self._target)
            self._gave_way = self._gave_way or before
            raise Overtaken from error
        after = self._target.look()
        number = after.committed_number(table.app_id)
        if number is None or number < table.to_manifest:
            raise InvariantBroken(
                f"{table.table} stands at manifest {number} after a commit of {table.to_manifest}"
            )
        if counts is None:
            return self._already(after, number)
        pending = self._pending() if commit_metadata.pending else (0, ())
        rows = RowFigures(checked.rows, *counts, *pending)
        concurrent_commits, warnings = self._concurrent_commits(after, commit_metadata)
        warnings += self._describe() + self._drop_versions(after)
        receipt = msgspec.structs.replace(
            applied_by_us(table, after.number, rows),
            external_changes=(*concurrent_commits, *since.external),
            lineage=self._lineage,
            warnings=warnings,
        )
        if commit_metadata.unhealed or concurrent_commits or rows.pending:
            receipt = msgspec.structs.replace(receipt, complete_through_us=None)
        return self._measured(receipt, after, checked.times)

    def _read_parts(self) -> parts.Checked:
        """Count the plan's parts, in the local rows where these are few."""
        session, store_url, table = self._session, self._plan.store_url, self._table
        self._local = read_local(session, store_url, table) if is_small(table) else None
        if self._local is not None:
            return self._local.checked
        return parts.count_parts(session, store_url, table)

    def _concurrent_commits(
        self, after: TargetVersion, commit_metadata: CommitMetadata
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Find what others changed between the last look at the target and our commit; warnings.

        Later looks at the log find it, too, because the metadata records what its run knew. It is
        recorded in the table's properties with the other unhealed changes.
        """
        concurrent_commits: tuple[str, ...] = ()
        try:
            commit = after.commit_of(commit_metadata.app_id, commit_metadata.to_manifest)
            if commit is not None:
                concurrent_commits = external_before(
                    after.commits_from(commit), commit_metadata.app_id
                )
            note(self._target, after.properties, commit_metadata, concurrent_commits)
        except Exception as error:  # noqa: BLE001  what is committed is committed
            why = unexpected(error, f"noting what others did to {self._table.table}")
            return concurrent_commits, (why.message,)
        return concurrent_commits, ()

    def _describe(self) -> tuple[str, ...]:
        """Copy the source's description to the target; return warnings."""
        planned, before = self._described, self._gave_way
        try:
            if planned is not None and not planned.more:
                describe(self._target, planned, self._table.mode)
            elif planned is None and before is not None:
                declare_again(self._target, before)
        except Exception as error:  # noqa: BLE001  what is committed is committed
            why = unexpected(error, f"describing {self._table.table}")
            return (f"{why.message}; the next merge does it again",)
        return ()

    def _drop_versions(self, after: TargetVersion) -> tuple[str, ...]:
        """Keep the table's record of its versions short; return warnings."""
        try:
            self._target.drop_versions(after)
        except Exception as error:  # noqa: BLE001  what is committed is committed
            why = unexpected(error, f"dropping former versions of {self._table.table}")
            return (f"{why.message}; a later merge does it again",)
        return ()

    def _since_ours(self, seen: TargetVersion, applied: int | None) -> SinceOurs:
        if seen.number < 0 or (self._table.create and applied is None):
            return SinceOurs()
        return self._target.since_ours(seen.commits(), self._table.app_id)

    def _commit(
        self, snapshot: TargetSnapshot, commit_metadata: CommitMetadata, since: SinceOurs
    ) -> RowCounts | None:
        """Bring the columns along and commit; None when another run was first."""
        mode = mode_of(self._table)
        ready = self._ready(snapshot, commit_metadata, since)
        table, stands = ready.table, ready.stands
        if not table.create:  # Its columns may have other names by now.
            layout = TableLayout.of_properties(ready.snapshot.properties)
            table = msgspec.structs.replace(table, layout=layout)
        changes, partitions = self._changes(table, stands), dict[PartitionField, list[str]]()
        if self._local is not None:
            partitions = partitions_of(changes, table, moved=parts.has_moves(table))
        work = Work(
            table=table,
            session=self._session,
            target=self._target,
            snapshot=ready.snapshot,
            commit_metadata=commit_metadata,
            changes=changes,
            damage=unhealed(snapshot, since),
            before_commit=self._check_still_here,
            stands=stands,
            local=self._local is not None,
            partitions=partitions,
        )
        self._lineage = column_lineage(msgspec.structs.replace(table, changes=self._table.changes))
        counts = mode.commit(work)
        self._on_point(AFTER_COMMIT)
        return counts

    def _changes(self, table: TablePlan, stands: TargetColumns) -> DataFrame:
        frames = None if self._local is None else self._local.frames
        store_url = self._plan.store_url
        changes = parts.read_changes(self._session, store_url, table, stands, frames)
        return kept_values(changes, table)

    def _check_still_here(self) -> None:
        """Check for commits by others before the statement runs; the format sees later ones.
        Otherwise changes since the look at the target would be neither in the commit's metadata nor
        found after the commit."""
        self._on_point(BEFORE_COMMIT)
        now, app = self._target.look(), self._table.app_id
        snapshot = now.snapshot()
        applied = snapshot.applied.get(app)
        if not starts_here(self._table, snapshot, applied):
            raise Overtaken
        if astray(self._table, applied, self._since_ours(now, applied)) is not None:
            raise Overtaken
        later = external_since(now.commits(), self._seen, app)
        if not self._table.create and not {*later} <= {*self._external}:
            raise Overtaken

    def _ready(
        self, snapshot: TargetSnapshot, commit_metadata: CommitMetadata, since: SinceOurs
    ) -> Ready:
        """Return the plan in the target's columns, which from here on are those of its end."""
        table = self._table
        if table.create:
            return ready_to_create(table, snapshot)
        standing = since.commit_metadata
        if standing is None or since.external:
            standing = rowless_commit_metadata(
                standing or commit_metadata, table, unhealed(snapshot, since)
            )
        return bring_along(
            table,
            self._target,
            snapshot,
            standing,
            heals=since.went_back,
            came_back=since.came_back,
        )

    def _pending(self) -> tuple[int, Keys]:
        return pending_rows(self._target, mode_of(self._table).live(), self._table.schema)

    def _measured(
        self,
        receipt: TableReceipt,
        after: TargetVersion,
        times: Mapping[str, parts.Times] | None = None,
    ) -> TableReceipt:
        """Add how soon the plan's changes were queryable, if this plan made them so.

        ``times`` are counted again where they are None. The commit is done: a failure to measure
        is a warning.
        """
        table = self._table
        if table.create or not table.within_us:
            return receipt
        try:
            commit = after.commit_of(table.app_id, table.to_manifest)
            commit_metadata = None if commit is None else commit.commit_metadata
            if (
                commit is None
                or commit_metadata is None
                or commit_metadata.plan_id != self._plan.plan_id
            ):
                return receipt
            if times is None:
                times = parts.count_parts(self._session, self._plan.store_url, table).times
            figures = measure(self._session, self._plan.store_url, table, times, commit.at_us)
            return msgspec.structs.replace(receipt, timeliness=figures)
        except Exception as error:  # noqa: BLE001  what is committed is committed
            failure = unexpected(error, f"measuring {table.table}")
        why = f"how soon its changes were queryable is not known: {failure.message}"
        return msgspec.structs.replace(receipt, warnings=(*receipt.warnings, why))

    def _already(self, seen: TargetVersion, applied: int) -> TableReceipt:
        """Return the receipt where another run was first; its metadata has its position."""
        since = self._target.since_ours(seen.commits(), self._table.app_id)
        commit_metadata = since.commit_metadata
        count, keys = (
            self._pending() if commit_metadata is not None and commit_metadata.pending else (0, ())
        )
        through = (
            self._table.complete_through_us
            if commit_metadata is None
            else commit_metadata.complete_through_us
        )
        snapshot = seen.snapshot()
        doubted = count or unhealed(snapshot, since) or since.went_back
        receipt = TableReceipt(
            table=self._table.table,
            outcome=Outcome.ALREADY_APPLIED,
            applied_manifest=applied,
            applied_seq=self._table.to_seq if commit_metadata is None else commit_metadata.seq,
            complete_through_us=None if doubted else through,
            target_version=seen.number,
            pending=count,
            pending_keys=keys,
        )
        return self._measured(receipt, seen)
