"""Moves a table to another table format: copies it, and has the copy take its place once both hold
the same.

The copy is one commit of the new table: the rows of one version of the old one, with the number of
the manifest that it had applied. The new table takes over by one commit of the *old* one, a
property that names it (`tideline.contract.moves`): from then on merges of the old table are
refused. Neither commit is made twice, whether a run is killed or two run at once.

A commit by others to the old table before it says so causes another comparison. One that slips in
between is found afterwards and reported: the new table does not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import replace
from pyspark.sql import SparkSession

from tideline.contract.change_log import BATCH
from tideline.contract.errors import CorruptData, Unavailable
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.external_commits import SinceOurs, is_external
from tideline.contract.modes import Mode
from tideline.contract.moves import MOVED_PROPERTY, MOVING_PROPERTY, PlannedMove
from tideline.contract.plan import (
    Plan,
    newest_generation,
)
from tideline.contract.printable import command
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.table_layout import TableLayout
from tideline_spark.attempts import Overtaken, Patience
from tideline_spark.describe import carry_over
from tideline_spark.formats.base import Target
from tideline_spark.formats.registry import open_target
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.plan_checks import check_new, check_owner
from tideline_spark.planned_manifests import PlannedManifests
from tideline_spark.table_copy import (
    copied_metadata,
    copied_properties,
    copied_rows,
    planned_copy,
)
from tideline_spark.table_receipts import failed_move, receipt_of, tried, with_pending
from tideline_spark.verification.same_rows import row_differences

BEFORE_COPY = "before-copy"
AFTER_COPY = "after-copy"
BEFORE_MOVE = "before-move"
AFTER_MOVE = "after-move"
_VIEW = "tideline_copied"


class MoveRun:
    """One step of a move, in its own session."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        move: PlannedMove,
        on_point: Callable[[str], None],
        planned_manifests: PlannedManifests,
    ) -> None:
        self._made_from = planned_manifests
        self._plan = plan
        self._move = move
        self._session = spark.newSession()
        self._live = open_target(self._session, move.source)
        self._new = open_target(self._session, move.target)
        self._on_point = on_point

    def run(self, patience: Patience) -> TableReceipt:
        """Take the step and return the receipt: see `receipt_of`."""
        move = self._move
        failure = partial(failed_move, move)
        return receipt_of(self._attempt, failure, patience, f"moving {move.table}")

    def _attempt(self) -> TableReceipt:
        move = self._move
        live, new = self._live.snapshot(), self._new.snapshot()
        for one, url in ((live, move.source), (new, move.target)):
            if one.exists:
                self._check_owner(one, url)
        taken_over = live.properties.get(MOVED_PROPERTY)
        made = new.exists and new.build == move.build
        if made and taken_over == move.target:
            return self._ended(new)
        if taken_over is not None:
            return self._refused(f"it was moved to {taken_over}")
        lost = self._made_from.lost(move.to_manifest, move.to_digest)
        refusal = lost or self._not_here(live)
        if refusal is not None:
            return self._refused(refusal)
        if move.copy:
            return self._copied(live, new)
        if not made or MOVING_PROPERTY not in new.properties:
            return self._refused("its copy is gone")
        return self._pointed(live, new)

    def _check_owner(self, snapshot: TargetSnapshot, url: str) -> None:
        owner = (self._plan.pipeline, self._plan.incarnation, self._move.table)
        check_owner(snapshot.properties, owner, url, "move or remove it, or name another place")

    def _not_here(self, live: TargetSnapshot) -> str | None:
        """Return why the old table is not the plan's; None if it is."""
        move = self._move
        if not live.exists:
            return "it is gone"
        if live.build != move.live_build:
            return f"it was rebuilt meanwhile (rebuild {live.build})"
        newest = newest_generation(live.applied, move.live_app_id, move.live_build)
        if newest > newest_generation([move.live_app_id], move.live_app_id):
            return "it holds a newer generation of the source's table"
        if move.live_app_id not in live.applied:
            return "it has applied nothing of its generation"
        return None

    # Copying.

    def _copied(self, live: TargetSnapshot, new: TargetSnapshot) -> TableReceipt:
        """Make the new table, in one commit."""
        move = self._move
        if new.exists:
            if new.build != move.build:
                return self._refused(f"another table of it lies at {move.target}")
            return self._counted(self._receipt(Outcome.ALREADY_APPLIED, new, move.app_id))
        since = self._since_ours(self._live, live.version, move.live_app_id)
        stands = TargetColumns.parse(live.properties.get(COLUMNS_PROPERTY))
        commit_metadata = copied_metadata(self._plan, move, live, since)
        if stands.seq != move.columns_seq or stands.seq > commit_metadata.seq:
            return self._refused(
                "its columns are ahead of its rows: a merge of it is under way, or was killed"
            )
        table = planned_copy(move, commit_metadata)
        check_new(table)
        rows = copied_rows(self._live.rows(live.version), table, stands)
        rows.createOrReplaceTempView(_VIEW)
        layout = TableLayout(partition_by=(BATCH,)) if move.mode is Mode.APPEND else move.layout
        properties = copied_properties(move, live, stands)
        self._on_point(BEFORE_COPY)
        self._new.create(_VIEW, table, properties, commit_metadata, layout)
        self._on_point(AFTER_COPY)
        after = self._new.snapshot()
        if after.build != move.build:
            raise Overtaken
        words = self._live.description.words()
        doing = f"describing the copy of {move.table}"
        warnings = tuple(tried(lambda: carry_over(self._new, words, words), doing, "merge"))
        receipt = self._counted(self._receipt(Outcome.APPLIED, after, move.app_id))
        return replace(receipt, external_changes=since.external, warnings=warnings)

    # Taking over.

    def _pointed(self, live: TargetSnapshot, new: TargetSnapshot) -> TableReceipt:
        """Compare both tables, and have the new one take over."""
        move = self._move
        if live.applied[move.live_app_id] != move.to_manifest:
            number = live.applied[move.live_app_id]
            return self._refused(
                f"it stands at manifest {number}, the plan knows it at {move.to_manifest}"
            )
        if not new.applied.get(move.app_id, move.to_manifest + 1) <= move.to_manifest:
            return self._refused("its copy does not hold what it has applied")
        since = self._since_ours(self._live, live.version, move.live_app_id)
        apart = (BATCH,) if move.mode is Mode.APPEND else ()
        found = row_differences(self._new.rows(new.version), self._live.rows(live.version), apart)
        if found and not move.accept_differences:
            return self._differs(found, since)
        self._on_point(BEFORE_MOVE)
        if (self._live.newest(), self._new.newest()) != (live.version, new.version):
            raise Overtaken
        self._live.set_property(MOVED_PROPERTY, move.target)
        self._on_point(AFTER_MOVE)
        late = self._not_carried_over(live.version)
        receipt = self._ended(new)
        return replace(
            receipt,
            outcome=Outcome.APPLIED,
            external_changes=(*since.external, *late),
            differences=found,
        )

    def _not_carried_over(self, before: int) -> tuple[str, ...]:
        """Find commits by others to the old table between the comparison and the commit that named
        the new one."""
        found = []
        for commit in self._live.commits(self._live.newest()):
            if commit.version <= before:
                break
            if is_external(commit, self._move.live_app_id):
                found.append(f"{commit} (not in the new table)")
        return tuple(found)

    def _ended(self, new: TargetSnapshot) -> TableReceipt:
        """Rid the new table, which has taken over, of its mark; describe it first, and remove what
        abandoned rebuilds have left."""
        move, warnings = self._move, tuple[str, ...]()
        if MOVING_PROPERTY in new.properties:
            if self._live.newest() >= 0:
                words = [one.description.words() for one in (self._live, self._new)]
                doing = f"describing {move.table}"
                warnings = tuple(tried(lambda: carry_over(self._new, *words), doing, "merge"))
            self._new.set_property(MOVING_PROPERTY, None)
        for address in move.superseded:
            open_target(self._session, address).remove()
        receipt = self._receipt(Outcome.ALREADY_APPLIED, self._new.snapshot(), move.app_id)
        return replace(self._counted(receipt), warnings=warnings)

    # Receipts.

    def _since_ours(self, table: Target, version: int, app_id: str) -> SinceOurs:
        return table.since_ours(table.commits(version), app_id)

    def _receipt(self, outcome: Outcome, found: TargetSnapshot, app_id: str) -> TableReceipt:
        move = self._move
        return TableReceipt(
            table=move.table,
            outcome=outcome,
            applied_manifest=found.applied.get(app_id, 0),
            applied_seq=move.to_seq,
            target_version=found.version,
        )

    def _counted(self, receipt: TableReceipt) -> TableReceipt:
        """Add the rows that lack values."""
        move, version = self._move, receipt.target_version or 0
        made = self._since_ours(self._new, version, move.app_id).commit_metadata
        return with_pending(receipt, self._new, made, move.mode, move.schema)

    def _differs(self, found: Mapping[str, int], since: SinceOurs) -> TableReceipt:
        text = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
        error = CorruptData(
            f"the copy of {self._move.table} is not what the table itself is: {text}",
            hint="`tideline verify` says whether the table agrees with the source;"
            f" {command('delete-former', self._move.table)} removes the copy, for another one with"
            " --restart; --accept-differences takes it as it is",
        )
        receipt = failed_move(self._move, error)
        return replace(receipt, differences=found, external_changes=since.external)

    def _refused(self, why: str) -> TableReceipt:
        move = self._move
        return TableReceipt(
            table=move.table,
            outcome=Outcome.REFUSED,
            applied_manifest=move.to_manifest,
            applied_seq=move.to_seq,
            error=f"{move.table} is not moved: {why}",
            error_kind=Unavailable.__name__,
            hint="take the rebuild's next step: the table has moved on",
        )
