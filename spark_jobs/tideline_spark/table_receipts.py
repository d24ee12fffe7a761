"""Makes the receipts of tables that a run brought to the plan's end, and of those it could not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from tideline.contract.errors import InvariantBroken, TidelineError, Unavailable
from tideline.contract.modes import Mode
from tideline.contract.moves import MOVED_PROPERTY, PlannedMove
from tideline.contract.plan import CommitMetadata, PlannedSwap, TablePlan, newest_generation
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.schema import TableSchema
from tideline_spark.attempts import Patience, try_until
from tideline_spark.failures import unexpected
from tideline_spark.formats.base import Target
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.modes import mode_named
from tideline_spark.pending import Keys, pending_rows


@dataclass(frozen=True, slots=True)
class RowFigures:
    """The counts of a run."""

    read: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    pending: int = 0
    pending_keys: Keys = ()


def receipt_of(
    attempt: Callable[[], TableReceipt],
    failure: Callable[[TidelineError], TableReceipt],
    patience: Patience,
    doing: str,
) -> TableReceipt:
    """Return the receipt of ``attempt``, or the ``failure`` that stopped it, in every case. A lost
    race is retried from the start, a transient failure for as long as ``patience`` allows."""
    began = time.monotonic()
    tried = try_until(attempt, patience, doing)
    receipt = tried.result
    if receipt is None:
        receipt = failure(tried.error or InvariantBroken("neither a receipt nor an error"))
    return replace(
        receipt,
        attempts=tried.attempts,
        conflicts=tried.conflicts,
        seconds=round(time.monotonic() - began, 3),
    )


def applied_by_us(table: TablePlan, version: int, rows: RowFigures) -> TableReceipt:
    """Make the receipt of a table that this run's commit brought to the plan's end; ``version`` is
    the target's newest one."""
    return TableReceipt(
        table=table.table,
        outcome=Outcome.APPLIED,
        applied_manifest=table.to_manifest,
        applied_seq=table.to_seq,
        complete_through_us=table.complete_through_us,
        target_version=version,
        rows_read=rows.read,
        inserted=rows.inserted,
        updated=rows.updated,
        deleted=rows.deleted,
        pending=rows.pending,
        pending_keys=rows.pending_keys,
    )


def failed(table: TablePlan, error: TidelineError) -> TableReceipt:
    """Make the receipt of a table that ``error`` stopped: the target is unchanged."""
    return _failed(table.table, table.from_manifest, table.from_seq, error)


def failed_move(move: PlannedMove, error: TidelineError) -> TableReceipt:
    return _failed(move.table, move.to_manifest, move.to_seq, error)


def failed_swap(swap: PlannedSwap, error: TidelineError) -> TableReceipt:
    return _failed(swap.table, swap.to_manifest, swap.to_seq, error)


def tried(do: Callable[[], object], doing: str, again: str) -> Iterator[str]:
    """Do what completes a table whose rows are committed; a failure is a warning.

    A run killed before this leaves a table that the next merge describes, and whose deletion
    vectors `tideline status` reports.
    """
    try:
        do()
    except Exception as error:  # noqa: BLE001
        failure = unexpected(error, doing)
        known = failure.hint if failure is error else None
        yield f"{failure.message}; {known or f'the next {again} of the table does it'}"


def with_pending(
    receipt: TableReceipt,
    target: Target,
    commit_metadata: CommitMetadata | None,
    mode: Mode,
    schema: TableSchema,
) -> TableReceipt:
    """Add the rows of ``target`` that lack values, where ``commit_metadata``, its last commit's,
    says that there may be some: the planner requests them from the receipt of that commit."""
    kept = mode_named(mode)
    pends = commit_metadata is not None and commit_metadata.pending
    if not (pends and kept.pends and schema.key):
        return receipt
    count, keys = pending_rows(target, kept.live(), schema)
    return replace(receipt, pending=count, pending_keys=keys)


def refused(
    table: TablePlan, snapshot: TargetSnapshot, applied: int | None, why: str | None = None
) -> TableReceipt:
    """Make the receipt of a plan that does not begin where the target stands, or (``why``) is not
    of its chain."""
    stands = "holds nothing of ours" if applied is None else f"stands at manifest {applied}"
    if snapshot.exists and snapshot.build != table.build:
        stands = f"was rebuilt since (rebuild {snapshot.build})"
    newest = newest_generation(snapshot.applied, table.app_id, table.build)
    if newest > table.generation:
        stands = f"holds generation {newest} of the source's table"
    if MOVED_PROPERTY in snapshot.properties:
        stands = f"was moved to {snapshot.properties[MOVED_PROPERTY]}"
    return TableReceipt(
        table=table.table,
        outcome=Outcome.REFUSED,
        applied_manifest=applied or 0,
        applied_seq=0,
        target_version=snapshot.version if snapshot.exists else None,
        error=why or f"the plan begins at manifest {table.from_manifest}, the target {stands}",
        error_kind=Unavailable.__name__,
        hint="plan again: another run was faster, or the target was replaced",
    )


def _failed(table: str, manifest: int, seq: int, error: TidelineError) -> TableReceipt:
    return TableReceipt(
        table=table,
        outcome=Outcome.FAILED,
        applied_manifest=manifest,
        applied_seq=seq,
        error=error.message,
        error_kind=type(error).__name__,
        hint=error.hint,
    )
