"""The merge receipt, what a merge did: document (e).

A run writes one receipt for its plan, next to it; each table in it stands for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from tideline.contract.document import decode_document, written_features, written_version

RECEIPT_VERSION = 1
FEATURES: frozenset[str] = frozenset()
"""The optional features that this version understands."""


class Outcome(StrEnum):
    APPLIED = "applied"
    ALREADY_APPLIED = "already_applied"
    """The target's transaction version is at or past the plan's end: nothing was done."""
    REFUSED = "refused"
    """The target is not where the plan begins; plan anew."""
    FAILED = "failed"


class TableReceipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one table.

    ``applied_manifest`` and ``applied_seq`` are where the table stands afterwards;
    ``complete_through_us`` the source clock (µs UTC) up to which it is complete.
    ``rows_read`` counts the parts' rows; ``inserted``, ``updated``, ``deleted`` what the MERGE did;
    ``pending`` rows that still lack a column's value. ``foreign_changes`` names data-changing
    commits by others since our last one: the table is unproven until it is dumped.
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
    foreign_changes: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    error_kind: str | None = None
    hint: str | None = None


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The receipt of one plan; ``held`` repeats the plan's tables that were left out, and why."""

    plan_id: str
    pipeline: str
    incarnation: str
    tables: tuple[TableReceipt, ...]
    held: Mapping[str, str] = msgspec.field(default_factory=dict)
    version: int = written_version(RECEIPT_VERSION)
    requires: tuple[str, ...] = written_features()


def encode_receipt(receipt: Receipt) -> bytes:
    return msgspec.json.encode(receipt)


def decode_receipt(raw: bytes) -> Receipt:
    """Decode a receipt; CorruptData for bytes that are not one, or that need a newer reader."""
    return decode_document(
        raw, Receipt, version=RECEIPT_VERSION, features=FEATURES, name="merge receipt"
    )
