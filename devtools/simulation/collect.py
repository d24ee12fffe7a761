"""Builds the history of a run: the chain as its readers see it, commits, the source."""

from __future__ import annotations

from dataclasses import replace

from devtools.simulation.database import EPOCH_S, bank_total
from devtools.simulation.history import (
    ChainEvent,
    ChainManifest,
    LedgerTransaction,
    Liveness,
    MergeCommit,
    Row,
    RunHistory,
)
from devtools.simulation.reported import reported
from devtools.simulation.rows import PartRow
from devtools.simulation.stage import SimulatedStage
from devtools.simulation.tables import ACCOUNTS, LATER, digest_of, shape_of
from devtools.simulation.wire import PLACES, index_of
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Manifest, decode_manifest, digest
from tideline.contract.reasons import SnapshotReason
from tideline.contract.schema import Verdict


def collect(rig: SimulatedStage, liveness: Liveness) -> RunHistory:
    """Gather all that is known of the run."""
    manifests = []
    settled = liveness.heartbeat_s is not None
    keys = sorted(key for key in rig.bucket.objects if "/log/" in key)
    for key in keys:
        raw = rig.bucket.objects[key]
        manifests.append(_manifest(rig, decode_manifest(raw), digest(raw)))
    source = {
        name: tuple(
            Row(key, row["ver"], digest_of(row), shape_of(row))
            for key, row in sorted(table.rows.items())
        )
        for name, table in rig.database.tables.items()
    }
    return RunHistory(
        transactions=_ledger(rig, manifests),
        manifests=tuple(manifests),
        rolled_back=tuple(rig.database.rolled_back),
        attempts=tuple(rig.attempts),
        commits=_commits(rig, manifests),
        source=source,
        totals={ACCOUNTS: bank_total(rig.database.tables[ACCOUNTS].rows)},
        remerges=tuple(rig.merger.merge_again()) if settled else (),
        liveness=liveness,
        settled=settled,
    )


def _commits(rig: SimulatedStage, manifests: list[ChainManifest]) -> tuple[MergeCommit, ...]:
    """Return the merges' commits.

    Changes without row events leave rows in doubt, and columns that the log did not repeat wrong,
    until a dump that began after them is merged. So does a change of columns whose new places are
    not certain.
    """
    doubts = [(table, _seq_at(manifests, position)) for table, position in rig.database.unlogged]
    doubts += [
        (event.table, event.seq - 1)
        for manifest in rig.merger.manifests
        for event in manifest.schema_events
        if event.verdict != Verdict.NEUTRAL.value
    ]
    results = _results(rig)
    commits = []
    for commit in rig.merger.commits:
        found = [
            seq
            for table, number, seq in results
            if table == commit.table and number <= commit.to_manifest
        ]
        healed = max(found, default=-1)
        if any(table == commit.table and seq >= healed for table, seq in doubts):
            rows = tuple(replace(row, digest=None, shape=None) for row in commit.rows)
            commit = replace(commit, rows=rows, whole=False, total=None)
        commits.append(commit)
    return tuple(commits)


def _results(rig: SimulatedStage) -> list[tuple[str, int, int]]:
    """Return (table, manifest, sequence): with that manifest no change up to the sequence is in
    doubt.

    That is when a whole dump ended which began there, and the rows that moved while it ran, without
    all their values, have been read again too.
    """
    results, waiting = [], []
    for manifest in rig.merger.manifests:
        waiting += [
            (delete_before.table, delete_before.seq) for delete_before in manifest.deletes_before
        ]
        if manifest.state is None or not waiting:
            continue
        rereading = {
            table
            for item in manifest.state.requests
            if item.request.why is SnapshotReason.REREAD
            for table in item.request.tables
        }
        done = [one for one in waiting if one[0] not in rereading]
        results += [(table, manifest.manifest_number, seq) for table, seq in done]
        waiting = [one for one in waiting if one[0] in rereading]
    return results


def _seq_at(manifests: list[ChainManifest], position: int) -> int:
    """Return the last sequence of the log's rows up to ``position``."""
    end = (position + 1) * PLACES
    return max(
        (
            event.seq
            for manifest in manifests
            for event in manifest.events
            if isinstance(event.log_position, int) and event.log_position < end
        ),
        default=0,
    )


def _ledger(rig: SimulatedStage, manifests: list[ChainManifest]) -> tuple[LedgerTransaction, ...]:
    """Return the ledger.

    What a reader left out before its table was captured for the first time, and what was committed
    before capture began, is in no segment: the first dump has it. This does not excuse the table
    whose creation is in the log.
    """
    database, first = rig.database, rig.merger.first_seen()
    began = database.began_at or 0
    transactions = []
    for one in database.transactions:
        position = database.positions.get(one.txid, 0)

        def excused(table: str, position: int = position) -> bool:
            early = table != LATER and position <= first.get(table, 1 << 40)
            return position <= began or (early and (table, position) in database.passed)

        if any(entry.logged and excused(entry.table) for entry in one.entries):
            entries = tuple(
                replace(entry, logged=entry.logged and not excused(entry.table))
                for entry in one.entries
            )
            one = LedgerTransaction(one.txid, entries)
        transactions.append(one)
    return tuple(transactions)


def _manifest(rig: SimulatedStage, manifest: Manifest, raw_digest: str) -> ChainManifest:
    events: list[ChainEvent] = []
    for part in manifest.parts:
        try:
            rows = rig.merger.parts.rows(rig.merger.schema(part.schema), part.key)
        except (CorruptData, KeyError):
            rig.active_faults.complain(
                "L", f"a part of manifest {manifest.manifest_number} is missing"
            )
            continue
        events += [_event(part.table, row) for row in rows]
    position = index_of(manifest.position)
    one = reported(manifest, raw_digest, events, position=position)
    if rig.clocks_were_ahead:
        return one  # Both of them: then no comparison can detect it.
    rest = rig.database.log[position : position + 1]
    lacks_us = int((EPOCH_S + rest[0].at) * 1e6) if rest else None
    return replace(one, through_us=manifest.through_us, lacks_us=lacks_us)


def _event(table: str, row: PartRow) -> ChainEvent:
    dumped = row.op == "r" or (row.op == "d" and row.xid == 0)
    gone = row.op == "d"
    return ChainEvent(
        seq=row.seq,
        table=table,
        key=row.key,
        op=row.op,
        ver=None if gone else row.ver,
        digest=None if gone else row.digest,
        before_key=row.before,
        unchanged=row.unchanged,
        dumped=dumped,
        log_position=None if dumped else row.moment,
    )
