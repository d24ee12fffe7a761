"""The merge receipt, the result of a merge: document (e).

A run writes one receipt for its plan, next to it; each table in it is independent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256

import msgspec

from tideline.contract import layout
from tideline.contract.document import (
    DocumentReader,
    with_checksum,
    written_features,
    written_version,
)
from tideline.contract.reasons import SnapshotReason, own_id
from tideline.contract.request import DumpRequest
from tideline.contract.timeliness import MergeRun, TableFigures, Timeliness, encode_run

RECEIPT_VERSION = 1
FEATURES: frozenset[str] = frozenset()
"""The optional features that this version understands."""
_PENDING_PARTS = re.compile("[^:]*:[0-9]+:[0-9a-f]{12}")
_MERGE = "tideline merge"
PENDING_KEYS_MAX = 10_000
"""Maximum number of rows that are read again one by one; of a table with more, all are."""
_REREAD_BYTES_MAX = 512 * 1024


class Outcome(StrEnum):
    APPLIED = "applied"
    ALREADY_APPLIED = "already_applied"
    """The target's transaction version is at or past the plan's end: nothing was done."""
    REFUSED = "refused"
    """The target is not where the plan begins; plan again."""
    FAILED = "failed"


DONE = frozenset({Outcome.APPLIED, Outcome.ALREADY_APPLIED})
"""The outcomes of a table that is where its plan was to bring it."""


class ColumnLineage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origin of a target's column: the source's ``source`` (empty: of the same name).

    ``type`` is its logical type. ``steps`` lists the steps of the plan's range that it took, each
    as ``what at sequence``, oldest first.
    """

    column: str
    type: str
    source: str = ""
    steps: tuple[str, ...] = ()


class TableReceipt(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"external_changes": "foreign_changes"}
):
    """The result for one table.

    ``differences``, of a rebuilt table: keys by how it differs from the live one.

    ``applied_manifest`` and ``applied_seq`` are where the table stands afterwards;
    ``complete_through_us`` the source clock (µs UTC) up to which it is complete. ``rows_read``
    counts the parts' rows; ``inserted``, ``updated``, ``deleted`` what the MERGE did; ``pending``
    rows that still lack a column's value; ``pending_keys`` are the keys of them all, a text per key
    column, absent above `PENDING_KEYS_MAX`. ``external_changes`` names external commits since our
    last one: the table needs a resnapshot. ``attempts`` were made (0: an older run,
    which did not count), ``conflicts`` of them lost to another writer. ``timeliness``: how soon the
    plan's changes were queryable, the same figures however often the plan is run; None where
    nothing was merged, or a table was built. ``lineage`` has the columns that were written.
    ``warnings`` say what went wrong besides the merge. ``bytes_billed``: by a warehouse that bills
    its jobs, for all attempts.
    """

    table: str
    outcome: Outcome
    applied_manifest: int
    applied_seq: int
    complete_through_us: int | None = None
    target_version: int | None = None
    rows_read: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    pending: int = 0
    pending_keys: tuple[tuple[str, ...], ...] = ()
    external_changes: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    error_kind: str | None = None
    hint: str | None = None
    differences: Mapping[str, int] = msgspec.field(default_factory=dict)
    attempts: int = 0
    conflicts: int = 0
    timeliness: Timeliness | None = None
    lineage: tuple[ColumnLineage, ...] = ()
    warnings: tuple[str, ...] = ()
    bytes_billed: int = 0


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True, rename={"delayed": "held"}):
    """The receipt of one plan; ``delayed`` repeats the plan's tables that were left out, and why.
    ``seconds`` is what all tables together took, of which many may be merged concurrently;
    ``capped``: the plan ended before the chain did, because of its caps. ``warnings`` say what went
    wrong with tables that nothing was merged into."""

    plan_id: str
    pipeline: str
    incarnation: str
    tables: tuple[TableReceipt, ...]
    delayed: Mapping[str, str] = msgspec.field(default_factory=dict)
    seconds: float = 0.0
    capped: bool = False
    warnings: tuple[str, ...] = ()
    version: int = written_version(RECEIPT_VERSION)
    requires: tuple[str, ...] = written_features()


def encode_receipt(receipt: Receipt) -> bytes:
    return msgspec.json.encode(receipt)


def stored_documents(receipt: Receipt, ended_us: int) -> tuple[tuple[str, bytes], ...]:
    """Return the keys and contents that a run which ended at ``ended_us`` (µs since 1970 UTC)
    stores, in that order: its record and its receipt. A run that is killed in between is run again
    and repeats its figures."""
    run_key = layout.run_key(receipt.pipeline, ended_us, receipt.plan_id)
    receipt_key = layout.receipt_key(receipt.pipeline, receipt.plan_id)
    return (
        (run_key, with_checksum(encode_run(run_of(receipt, ended_us)))),
        (receipt_key, with_checksum(encode_receipt(receipt))),
    )


def decode_receipt(raw: bytes, at: str = "") -> Receipt:
    """Decode a receipt; CorruptData for bytes that are not one, or that need a newer reader."""
    return _READER.read(raw, at)


_READER = DocumentReader(Receipt, version=RECEIPT_VERSION, features=FEATURES, name="merge receipt")


def run_of(receipt: Receipt, ended_us: int) -> MergeRun:
    """Make the record of a run that ended at ``ended_us`` (µs since 1970 UTC) with ``receipt``."""
    return MergeRun(
        plan_id=receipt.plan_id,
        ended_us=ended_us,
        tables=tuple(
            TableFigures(
                table=one.table,
                outcome=one.outcome.value,
                timeliness=one.timeliness,
                rows=one.rows_read,
                attempts=one.attempts,
                conflicts=one.conflicts,
                seconds=one.seconds,
                error=one.error,
                error_kind=one.error_kind,
                bytes_billed=one.bytes_billed,
            )
            for one in receipt.tables
        ),
        delayed=receipt.delayed,
        capped=receipt.capped,
    )


def reread_requests(receipt: Receipt) -> list[DumpRequest]:
    """Make the requests to the worker after which no row of the plan's tables stays pending.

    Where the keys are too many for a message, they ask for the whole table. The ids follow from
    what is applied: asking twice joins.
    """
    return [
        reread_request(
            one.table,
            _askable(one.pending_keys),
            incarnation=receipt.incarnation,
            applied=one.applied_manifest,
        )
        for one in receipt.tables
        if one.pending
    ]


def reread_request(
    table: str, keys: tuple[tuple[str, ...], ...] | None, *, incarnation: str, applied: int
) -> DumpRequest:
    """Make the request for ``keys`` (None: all rows) of ``table`` that are pending at manifest
    ``applied``."""
    return DumpRequest(
        request_id=own_id(SnapshotReason.PENDING, incarnation[:8], applied, _short(table)),
        tables=(table,),
        keys=keys,
        requested_by=_MERGE,
    )


def rereads_pending(request: DumpRequest) -> bool:
    """Return whether ``request`` is a `reread_request`, and not only called like one."""
    return (
        request.requested_by == _MERGE
        and len(request.tables) == 1
        and not request.ranged
        and not request.verifies
        and request.why is SnapshotReason.PENDING
        and _PENDING_PARTS.fullmatch(request.request_id.partition(":")[2]) is not None
        and request.request_id.endswith(f":{_short(request.tables[0])}")
    )


def _short(table: str) -> str:
    return sha256(table.encode()).hexdigest()[:12]


def _askable(keys: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...] | None:
    return keys if keys and len(msgspec.json.encode(keys)) <= _REREAD_BYTES_MAX else None
