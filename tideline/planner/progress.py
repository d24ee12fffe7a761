"""Reports how far every table is merged, for `tideline status`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec

from tideline.contract import layout
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import TableCondition, TableState
from tideline.contract.plan import CommitMetadata
from tideline.contract.planning.stops import Stop, stop_text
from tideline.contract.planning.table_plans import complete_through
from tideline.contract.printable import command
from tideline.contract.receipt import DONE, decode_receipt
from tideline.contract.schema import parse_table
from tideline.contract.target_url import table_format_of, vectors_wanted
from tideline.planner.applied_chain import strayed
from tideline.planner.chain_index import ChainIndex
from tideline.planner.history_parts import recreate_refusal
from tideline.planner.layouts import limited, unmakeable, unread_by
from tideline.planner.stored import read_stored
from tideline.planner.table_status import TableStage, TableStatus, Through
from tideline.planner.targets import not_in_use, other_owner, target_of
from tideline.planner.verified import LastVerification, VerifiedThrough, last_verification
from tideline.settings import Settings
from tideline.settings.tables import TableSettings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store
from tideline.warehouse.state import TargetState, read_target

_STRAYED = "its target has applied another chain than the store's"


@dataclass(frozen=True, slots=True)
class WarehouseTables:
    """Every table with a schema as its target alone shows it, and the newest equal verifications,
    by table.

    Of a status here, ``captured`` and ``merged`` are the chain's tail when nothing of a captured
    table waits, else ``merged`` is what the target has applied. ``state`` is ``blocked`` when the
    table cannot be merged, and ``unhealed`` after external commits that neither a full dump nor a
    verification has healed. ``pending`` counts the rows that lack values which the log did not
    carry, as the last merge's receipt does (None: there is no receipt, and some rows may lack
    values). ``mode`` is how the target is kept: it keeps the mode that it was made in until
    `tideline rebuild` switches it. What only the chain or the source knows is not filled in.
    """

    tables: Mapping[str, TableStatus] = field(default_factory=dict)
    verifications: Mapping[str, LastVerification] = field(default_factory=dict)

    def settled(self, name: str, state: TableState) -> TableState:
        """Return the chain's state of a table, without the doubts that its verification ended."""
        last = self.verifications.get(name)
        return state if last is None else last.settled(state)

    def verified(self, name: str, state: TableState) -> VerifiedThrough | None:
        """Return up to where the table was verified, as it holds for the chain's ``state``."""
        last = self.verifications.get(name)
        return None if last is None else last.through(state)

    def doubt(self, name: str) -> str | None:
        """Return why the table may not hold all that was merged into it; None when it does."""
        one = self.tables.get(name)
        if one is None:
            return None
        if one.reason is not None and one.since_seq is None:
            return one.reason
        if one.pending is None:
            return "rows may lack values that the log did not carry: the last receipt is not there"
        if one.pending:
            return f"{one.pending} rows lack values that the log did not carry and are read again"
        return None

    def holds_up(self, name: str) -> str | None:
        """Return what keeps merges from completing the table: a doubt, or a change of columns that
        the settings block."""
        one = self.tables.get(name)
        if self.doubt(name) is not None or one is None or one.since_seq is None:
            return self.doubt(name)
        return stop_text(one.since_seq, one.reason or "", one.hint or "")

    def stopped(self, stops: Mapping[str, Stop]) -> Self:
        """Return the tables with the changes of columns that the settings block merges before;
        a table in doubt keeps that as its reason."""
        changed = {
            name: msgspec.structs.replace(
                self.tables[name],
                state=TableStage.SCHEMA_BLOCKED,
                since_seq=stop.seq,
                reason=stop.reason,
                hint=stop.hint,
            )
            for name, stop in stops.items()
            if self.tables[name].state is TableStage.ACTIVE
        }
        return replace(self, tables={**self.tables, **changed})

    def with_removed(self, removed: Iterable[str]) -> Self:
        """Return the tables with those ``removed`` as up to date: the source no longer has them,
        and their targets are not made again."""
        changed = {
            name: msgspec.structs.replace(self.tables[name], up_to_date=True) for name in removed
        }
        return replace(self, tables={**self.tables, **changed})


def applied_state(settings: Settings, wanted: Collection[str] | None = None) -> WarehouseTables:
    """Return how far every table with a schema is merged, or those ``wanted``; empty for a pipeline
    without a manifest.

    Reads the chain's tail and one log per table: milliseconds each, and no JVM.
    """
    store = open_store(settings.store)
    chain = Chain(store, settings.pipeline)
    tail = chain.tail()
    if tail is None:
        return WarehouseTables()
    known, chain_index = chain.open_state(tail).tables, ChainIndex(chain)
    tables: dict[str, TableStatus] = {}
    verifications: dict[str, LastVerification] = {}
    for name, table in sorted(known.items()):
        if table.schema is not None and (wanted is None or name in wanted):
            tables[name], last = _progress(settings, store, chain_index, tail.manifest, name, table)
            if last is not None:
                verifications[name] = last
    return WarehouseTables(tables, verifications)


def shown_by_target(
    name: str,
    captured: Through,
    merged: Through | None,
    *,
    up_to_date: bool,
    problem: str | None = None,
    external: Sequence[str] = (),
    **facts: Any,
) -> TableStatus:
    """Make a table's status from its target. ``problem``: why it cannot be merged; ``external``:
    commits of others that count as a doubt. While there is either, or rows are ``pending``, the
    source's clock up to which the target lacks nothing is unknown."""
    state, reason, hint = TableStage.ACTIVE, problem, None
    if problem is not None:
        state = TableStage.TARGET_BLOCKED
    elif external:
        state = TableStage.NEEDS_RESNAPSHOT
        reason = f"the warehouse's table was changed by others: {', '.join(external)}"
        hint = f"{command('dump', name)} heals it"
    if merged is not None and (reason is not None or facts.get("pending", 0) != 0):
        merged = msgspec.structs.replace(merged, source_time_us=None)
    return TableStatus(
        table=name,
        state=state,
        captured=captured,
        merged=merged,
        up_to_date=up_to_date and problem is None,
        reason=reason,
        hint=hint,
        complete_through_us=None if merged is None else merged.source_time_us,
        **facts,
    )


def captured_through(found: TableState, tail: Manifest) -> Through:
    """Return up to where a table is captured at the chain's ``tail``."""
    if found.condition is TableCondition.QUARANTINED and found.since_seq is not None:
        return Through(found.since_seq)
    return Through(tail.last_seq, tail.manifest_number, tail.through_us)


def _through(commit_metadata: CommitMetadata | None, tail: Manifest) -> int | None:
    """Return the metadata's time, limited to that of the whole chain: metadata of older versions
    may repeat a wrong clock."""
    if (
        commit_metadata is None
        or commit_metadata.complete_through_us is None
        or tail.through_us is None
    ):
        return None
    return min(commit_metadata.complete_through_us, tail.through_us)


def _progress(
    settings: Settings,
    store: ObjectStore,
    chain_index: ChainIndex,
    tail: Manifest,
    name: str,
    table: TableState,
) -> tuple[TableStatus, LastVerification | None]:
    target = target_of(settings, tail, name, table)
    problem = other_owner(target, tail, name) or not_in_use(target, name)
    # Another chain's numbers do not count, nor what was verified about them.
    why_strayed = "" if problem else strayed(chain_index, tail, name, target)
    last = last_verification(settings, store, tail, name, table)
    if why_strayed and last is not None and last.broken is None:
        last = replace(last, broken=_STRAYED)
    holds = last is not None and last.broken is None
    table = table if last is None else last.settled(table)
    if why_strayed:
        problem = why_strayed
    elif target.went_back:
        problem = "the target was set back behind what is applied (RESTORE)"
    wanted = settings.of_table(parse_table(name))
    problem = problem or recreate_refusal(name, table, target, wanted.mode)
    if problem is None and target.applied is None and limited(wanted, target):
        mode = target.mode if target.exists else wanted.mode
        schema = Chain(store, settings.pipeline).read_schema(table.schema or "")
        problem = unmakeable(schema, wanted, mode, target)
    applied = None if why_strayed else target.applied
    waiting = applied is None or applied < table.last_data_manifest
    merged = None
    if not waiting and table.condition is not TableCondition.QUARANTINED:
        merged = Through(tail.last_seq, tail.manifest_number, complete_through(table, tail))
    elif applied is not None:
        commit_metadata = target.commit_metadata
        merged = Through(
            0 if commit_metadata is None else commit_metadata.seq,
            applied,
            _through(commit_metadata, tail),
        )
    unhealed = () if holds else (*target.unhealed, *target.external)
    status = shown_by_target(
        name,
        captured_through(table, tail),
        merged,
        up_to_date=not waiting,
        problem=problem,
        external=unhealed,
        pending=_pending(settings, store, name, target.commit_metadata),
        **_kept_as(target, wanted),
        **_placed(settings, name, target),
        target=target.url,
        verified=None if last is None else last.through(table),
    )
    return status, last


def _kept_as(target: TargetState, wanted: TableSettings) -> dict[str, Any]:
    """Return how the target is kept, and the settings' value where that differs."""
    mode, vectors = wanted.mode, wanted.vectors
    if not target.exists:
        return {"mode": mode, "deletion_vectors": vectors, "layout": wanted.layout}
    return {
        "mode": target.mode,
        "mode_wanted": None if target.mode == mode else mode,
        "deletion_vectors": target.deletion_vectors,
        "deletion_vectors_wanted": vectors_wanted(target.url, target.deletion_vectors, vectors),
        "layout": target.layout,
        "layout_wanted": None if target.layout == wanted.layout else wanted.layout,
        "unread_by": unread_by(wanted.readers, target),
    }


def _placed(settings: Settings, name: str, target: TargetState) -> dict[str, Any]:
    """Return the target's table format, the settings' where that differs, and its former table."""
    held, wanted = table_format_of(target.url), settings.format_of(parse_table(name))
    former = target.former
    if former and not read_target(former, "", settings.warehouse_storage).moved_to:
        former = ""  # It was removed.
    return {
        "format": held,
        "format_wanted": wanted if target.exists and held != wanted else None,
        "former": former or None,
    }


def _pending(
    settings: Settings, store: ObjectStore, name: str, commit_metadata: CommitMetadata | None
) -> int | None:
    """Return the number of rows that the merge of ``commit_metadata`` left pending; the
    metadata only says that there may be some, and so does a receipt of a run that failed behind
    its commit."""
    if commit_metadata is None or not commit_metadata.pending:
        return 0
    key = layout.receipt_key(settings.pipeline, commit_metadata.plan_id)
    receipt = read_stored(store, key, decode_receipt)
    tables = () if receipt is None else receipt.tables
    return next((t.pending for t in tables if t.table == name and t.outcome in DONE), None)
