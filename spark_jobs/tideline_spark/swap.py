"""Replaces the live table by the rebuilt one, in one commit.

In order: both must stand at the swap's manifest, they are compared, and the live table is replaced
by the other's rows. A live table that cannot continue from an earlier manifest is not compared. It
is named by its path, so its readers see the old rows or the new ones. Old versions stay in its log.
Plans for the former table are refused from then on, because they name another build.

A commit by others to the live table before the swap causes another comparison. One during the swap
commit causes a conflict and a retry. One that slips in between is found afterwards and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace
from pyspark.sql import SparkSession

from tideline.contract.change_log import BATCH, SEQUENCE
from tideline.contract.description import DESCRIPTION_PROPERTY
from tideline.contract.errors import CorruptData, Unavailable
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.external_commits import SinceOurs, is_external
from tideline.contract.modes import Mode
from tideline.contract.moves import FORMER_PROPERTY, MOVED_PROPERTY
from tideline.contract.plan import CommitMetadata, Plan, PlannedSwap, newest_generation
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.table_layout import TableLayout
from tideline_spark.attempts import Overtaken, Patience
from tideline_spark.describe import carry_over
from tideline_spark.formats.base import Target
from tideline_spark.formats.registry import open_target
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.plan_checks import check_owner
from tideline_spark.planned_manifests import PlannedManifests
from tideline_spark.schemas import column as col
from tideline_spark.table_receipts import failed_swap, receipt_of, tried, with_pending
from tideline_spark.verification.comparable import SET_ASIDE, Side, differences

BEFORE_SWAP = "before-swap"
AFTER_SWAP = "after-swap"
_VIEW = "tideline_rebuilt"


def _our_properties(shadow: TargetSnapshot) -> dict[str, str]:
    """Return the rebuilt table's properties about its rows, for the live table."""
    found = {n: v for n, v in shadow.properties.items() if n.startswith("tideline.")}
    found.pop(DESCRIPTION_PROPERTY, None)  # It describes columns, which are described later.
    if COLUMNS_PROPERTY in found:
        # The rows already have the values that the column steps left to fill in; the live table's
        # own log does not record that.
        stands = TargetColumns.parse(found[COLUMNS_PROPERTY])
        found[COLUMNS_PROPERTY] = replace(stands, refill=type(stands.refill)()).text()
    return found


class SwapRun:
    """One swap of a plan, in its own session."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        swap: PlannedSwap,
        on_point: Callable[[str], None],
        planned_manifests: PlannedManifests,
    ) -> None:
        self._made_from = planned_manifests
        self._plan = plan
        self._swap = swap
        self._session = spark.newSession()
        self._live = open_target(self._session, swap.target)
        self._shadow = open_target(self._session, swap.shadow)
        self._on_point = on_point

    def run(self, patience: Patience) -> TableReceipt:
        """Swap and return the receipt: see `receipt_of`."""
        swap = self._swap
        failure = partial(failed_swap, swap)
        receipt = receipt_of(self._attempt, failure, patience, f"swapping {swap.table}")
        billed = self._live.bytes_billed + self._shadow.bytes_billed
        return replace(receipt, bytes_billed=billed)

    def _attempt(self) -> TableReceipt:
        swap = self._swap
        live = self._live.snapshot()
        self._check_owner(live, swap.target)
        if live.build == swap.build:
            self._clear()
            return self._counted(self._receipt(Outcome.ALREADY_APPLIED, live.version), live.version)
        refusal = self._made_from.lost(swap.to_manifest, swap.to_digest) or self._not_here(live)
        if refusal is not None:
            return self._refused(refusal)
        shadow = self._shadow.snapshot()
        self._check_owner(shadow, swap.shadow)
        if not shadow.applied.get(swap.app_id, swap.to_manifest + 1) <= swap.to_manifest:
            return self._refused("its shadow table is not built up to there")
        since = self._since_ours(self._live, live.version, swap.live_app_id)
        found, lost = self._compared(live, shadow)
        if (lost or set(found) - {SET_ASIDE}) and not swap.accept_differences:
            return self._differs(found, lost, since)
        self._on_point(BEFORE_SWAP)
        if self._live.newest() != live.version:
            raise Overtaken
        words = [one.description.words() for one in (self._live, self._shadow)]
        version = self._replace(live, shadow)
        self._on_point(AFTER_SWAP)
        overwritten = self._overwritten(live.version, version)
        warnings = (
            *tried(lambda: carry_over(self._live, *words), f"describing {swap.table}", "merge"),
            *tried(
                lambda: self._live.admit_readers(swap.without),
                f"dropping reader features of {swap.table}",
                "rebuild",
            ),
        )
        self._clear()
        receipt = self._counted(self._receipt(Outcome.APPLIED, version), version)
        external = (*since.external, *overwritten)
        return replace(receipt, external_changes=external, differences=found, warnings=warnings)

    def _check_owner(self, snapshot: TargetSnapshot, url: str) -> None:
        owner = (self._plan.pipeline, self._plan.incarnation, self._swap.table)
        check_owner(snapshot.properties, owner, url, "run `tideline rebuild` again")

    def _not_here(self, live: TargetSnapshot) -> str | None:
        """Return why the live table is not the plan's; None if it is."""
        swap = self._swap
        if MOVED_PROPERTY in live.properties:
            return f"it was moved to {live.properties[MOVED_PROPERTY]}"
        if live.build != swap.live_build:
            return f"it was rebuilt meanwhile (rebuild {live.build})"
        newest = newest_generation(live.applied, swap.live_app_id, swap.live_build)
        if newest > newest_generation([swap.live_app_id], swap.live_app_id):
            return "the live table holds a newer generation of the source's table"
        applied, wanted = live.applied.get(swap.live_app_id), swap.to_manifest
        if swap.live_to_manifest is not None:
            wanted = swap.live_to_manifest
        if applied != wanted:
            return f"the live table stands at manifest {applied}, the plan knows it at {wanted}"
        return None

    def _compared(
        self, live: TargetSnapshot, shadow: TargetSnapshot
    ) -> tuple[Mapping[str, int], list[str]]:
        """Return the differences, and the columns in which only the live table has values.

        A live table that stands elsewhere holds an older state: its rows are replaced by later
        ones and, for another generation, its columns as well.
        """
        swap = self._swap
        if swap.live_to_manifest is None:
            return self._differences(live, shadow), self._lost_columns(live, shadow)
        older, newer = (
            newest_generation([app], swap.app_id) for app in (swap.live_app_id, swap.app_id)
        )
        return {}, self._lost_columns(live, shadow) if older == newer else []

    def _differences(self, live: TargetSnapshot, shadow: TargetSnapshot) -> Mapping[str, int]:
        """Return the differences, except in columns that by the settings differ from the source."""
        swap = self._swap
        stands = TargetColumns.parse(live.properties.get(COLUMNS_PROPERTY))
        apart = {*stands.away, *stands.narrow}
        columns = tuple(one for one in swap.schema.columns if one.name not in apart)
        return differences(
            Side(self._shadow.rows(shadow.version), swap.mode),
            Side(self._live.rows(live.version), swap.live_mode),
            replace(swap.schema, columns=columns),
            swap.delete_before,
        )

    def _lost_columns(self, live: TargetSnapshot, shadow: TargetSnapshot) -> list[str]:
        """Return columns dropped by the source in which only the live table has values.

        A user who switches an archive to another mode wants to discard what it keeps.
        """
        swap = self._swap
        if swap.live_mode in (Mode.HISTORY, Mode.APPEND) and swap.mode is not swap.live_mode:
            return []
        kept, there = (
            TargetColumns.parse(one.properties.get(COLUMNS_PROPERTY)).retained
            for one in (live, shadow)
        )
        return sorted(set(kept) - set(there))

    def _replace(self, live: TargetSnapshot, shadow: TargetSnapshot) -> int:
        swap = self._swap
        rows = self._shadow.rows(shadow.version)
        layout = TableLayout.of_properties(shadow.properties)
        if swap.mode is Mode.APPEND:
            layout = TableLayout(partition_by=(BATCH,))
            rows = rows.repartitionByRange(col(SEQUENCE)).sortWithinPartitions(col(SEQUENCE))
        rows.createOrReplaceTempView(_VIEW)
        made = self._since_ours(self._shadow, shadow.version, swap.app_id).commit_metadata
        through = made
        if swap.live_to_manifest is None:
            through = self._since_ours(self._live, live.version, swap.live_app_id).commit_metadata
        commit_metadata = CommitMetadata(
            app_id=swap.app_id,
            pipeline=self._plan.pipeline,
            incarnation=self._plan.incarnation,
            plan_id=self._plan.plan_id,
            from_manifest=swap.to_manifest,
            to_manifest=swap.to_manifest,
            seq=swap.to_seq,
            complete_through_us=None if through is None else through.complete_through_us,
            pending=made is None or made.pending,
            digest=swap.to_digest,
        )
        theirs = self._live.properties_after_swap(live.properties, shadow.properties, swap.without)
        properties = theirs | _our_properties(shadow)
        if FORMER_PROPERTY in live.properties:
            properties[FORMER_PROPERTY] = live.properties[FORMER_PROPERTY]
        written = self._live.replace(_VIEW, properties, commit_metadata, layout)
        if written is None:
            raise Unavailable("another run of the rebuild has swapped the tables", hint="try again")
        return written

    def _since_ours(self, table: Target, version: int, app_id: str) -> SinceOurs:
        return table.since_ours(table.commits(version), app_id)

    def _overwritten(self, before: int, version: int) -> tuple[str, ...]:
        """Find commits by others between the comparison and the swap, which the swap undid."""
        found = []
        for commit in self._live.commits(version - 1):
            if commit.version <= before:
                break
            if is_external(commit, self._swap.app_id, self._swap.live_app_id):
                found.append(f"{commit} (undone by the swap)")
        return tuple(found)

    def _clear(self) -> None:
        """Remove the shadow table, which is no longer needed; a run killed here leaves it."""
        for address in (self._swap.shadow, *self._swap.superseded):
            open_target(self._session, address).remove()

    def _differs(
        self, found: Mapping[str, int], lost: Sequence[str], since: SinceOurs
    ) -> TableReceipt:
        differences = [f"{count} keys {kind}" for kind, count in sorted(found.items())]
        differences += [
            f"it alone keeps the column {name!r}, which the source dropped" for name in lost
        ]
        text = ", ".join(differences)
        error = CorruptData(
            f"the rebuilt {self._swap.table} is not what the live table is: {text}",
            hint="the chain's word is the rebuilt table's: `tideline verify` says which of the two"
            " the source agrees with; --accept-differences swaps them all the same",
        )
        receipt = failed_swap(self._swap, error)
        return replace(receipt, differences=found, external_changes=since.external)

    def _receipt(self, outcome: Outcome, version: int | None) -> TableReceipt:
        return TableReceipt(
            table=self._swap.table,
            outcome=outcome,
            applied_manifest=self._swap.to_manifest,
            applied_seq=self._swap.to_seq,
            target_version=version,
        )

    def _counted(self, receipt: TableReceipt, version: int) -> TableReceipt:
        """Add the rows that lack values: the planner now requests them from this receipt."""
        swap = self._swap
        made = self._since_ours(self._live, version, swap.app_id).commit_metadata
        return with_pending(receipt, self._live, made, swap.mode, swap.schema)

    def _refused(self, why: str) -> TableReceipt:
        return replace(
            self._receipt(Outcome.REFUSED, None),
            error=f"{self._swap.table} is not swapped: {why}",
            error_kind=Unavailable.__name__,
            hint="take the rebuild's next step: the live table has moved on",
        )
