"""Verifications: the plan of a comparison and its result: document (f).

The worker reads a table in chunks between watermarks into verification parts. A verification plan
names these parts, one version of the table's target, and the parts with the changes between the
two: keys that they touched are set aside, because the source's rows are older. The result stands
for that version.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from tideline.contract.clocks import utc_text
from tideline.contract.document import DocumentReader, written_features, written_version
from tideline.contract.manifest import VerificationChunk
from tideline.contract.plan import PlannedPart
from tideline.contract.request import KeyRange
from tideline.contract.schema import TableSchema

VERIFICATION_VERSION = 1
FEATURES: frozenset[str] = frozenset()
"""The optional features that this version understands."""
KEYS_MAX = 10_000
"""Maximum differing keys that a result lists; more are only counted."""
CHANGED_MAX = 100_000
"""Maximum keys set aside that a result lists, for another pass; of more, none."""


class Scope(StrEnum):
    """The rows of a table that are compared."""

    WHOLE = "whole"
    SAMPLE = "sample"
    RANGE = "range"
    KEYS = "keys"


class TableComparison(msgspec.Struct, frozen=True, omit_defaults=True, rename={"chunks": "checks"}):
    """The comparison of version ``target_version`` of ``target``, which has applied manifest
    ``applied`` (its last seq: ``applied_seq``), with what ``chunks`` hold.

    ``number`` is the transaction version that this version of the target must have under
    ``app_id``: smaller than ``applied`` where nothing of the table came after it. ``schema`` is
    the table's schema, of chunks and target alike. ``touched`` are the parts with the changes
    after ``low_seq``, the earliest chunk's. ``doubts``: as `TableState` had it before the first
    chunk was read.
    """

    table: str
    target: str
    target_version: int
    app_id: str
    number: int
    schema: TableSchema
    chunks: tuple[VerificationChunk, ...]
    low_seq: int
    applied: int
    applied_seq: int
    touched: tuple[PlannedPart, ...] = ()
    schemas: Mapping[str, TableSchema] = msgspec.field(default_factory=dict)
    source_time_us: int | None = None
    scope: Scope = Scope.WHOLE
    key_range: KeyRange | None = None
    sample_percent: int | None = None
    doubts: int = 0


class VerifyPlan(msgspec.Struct, frozen=True, omit_defaults=True, rename={"delayed": "held"}):
    """The work of one run of the comparison. ``delayed``: tables that cannot be compared, and
    why."""

    verify_id: str
    pipeline: str
    incarnation: str
    store_url: str
    request_id: str
    tables: tuple[TableComparison, ...]
    delayed: Mapping[str, str] = msgspec.field(default_factory=dict)
    version: int = written_version(VERIFICATION_VERSION)
    requires: tuple[str, ...] = written_features()


class VerificationOutcome(StrEnum):
    """The outcome of a comparison for a table."""

    EQUAL = "equal"
    DIFFERS = "differs"
    CHANGING = "moving"
    """No difference, but some keys changed in the meantime: they are still to be compared."""
    NOT_COMPARED = "unproven"
    """It could not be compared; ``reason`` says why."""


Difference = Literal["missing", "extra", "different", "sequence", "duplicate"]
"""The kinds of difference: a row that the target lacks, or has and the source has not; other
values; a ``_tl_seq`` that nothing applied can have written; a key in more than one row."""


class DifferentKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """One key (a text per key column) and how it differs; never a value of another column.

    ``columns`` are those with other values, of kind ``different``.
    """

    key: tuple[str, ...]
    kind: Difference
    columns: tuple[str, ...] = ()


class TableResult(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "outcome": "proof",
        "changing": "moving",
        "changed_keys": "moving_keys",
        "compared_later": "proven_later",
    },
):
    """The result for one table, whose target had applied all up to ``seq`` (source clock:
    ``source_time_us``).

    ``rows`` of the source were compared, each counted once, in whichever pass. ``missing``,
    ``extra``, ``different``, ``sequence`` and ``duplicates`` count keys by kind, ``columns`` the
    differences by column; ``keys`` lists the first `KEYS_MAX` of them. ``changing`` keys were
    set aside because they changed in the meantime (``changed_keys``, when they are few enough), and
    are to be compared by another pass; ``compared_later`` were, at ``later_seq``. ``repaired`` keys
    differed, were dumped and merged, and found equal then. ``pending``: rows with columns that are
    still to be read from the source, which were left out. ``extra_sought``: whether rows that the
    source lacks were looked for. ``uncompared`` columns are not in the target, by the settings.
    ``doubts``: the rows were read after so many doubts.
    """

    table: str
    outcome: VerificationOutcome
    seq: int = 0
    manifest_number: int = 0
    source_time_us: int | None = None
    target_version: int | None = None
    app_id: str = ""
    scope: Scope = Scope.WHOLE
    sample_percent: int | None = None
    key_range: KeyRange | None = None
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    sequence: int = 0
    duplicates: int = 0
    columns: Mapping[str, int] = msgspec.field(default_factory=dict)
    keys: tuple[DifferentKey, ...] = ()
    changing: int = 0
    changed_keys: tuple[tuple[str, ...], ...] = ()
    compared_later: int = 0
    later_seq: int | None = None
    repaired: int = 0
    pending: int = 0
    extra_sought: bool = True
    uncompared: tuple[str, ...] = ()
    reason: str | None = None
    hint: str | None = None
    seconds: float = 0.0
    doubts: int = 0

    @property
    def stand(self) -> str:
        """The position that it is true of, and how many of the rows were compared, in words."""
        text = f"at seq {self.seq}"
        if self.source_time_us is not None:
            text += f" (source time {utc_text(self.source_time_us)})"
        if self.sample_percent is not None:
            text += f" (a sample of {self.sample_percent} %)"
        return text

    @property
    def differences(self) -> int:
        """Keys that differ."""
        return self.missing + self.extra + self.different + self.sequence + self.duplicates

    @property
    def whole(self) -> bool:
        """Return whether it covers every row of the table."""
        return self.scope is Scope.WHOLE and self.extra_sought and not self.pending


class Verification(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one verification."""

    verify_id: str
    pipeline: str
    incarnation: str
    request_id: str
    tables: tuple[TableResult, ...]
    version: int = written_version(VERIFICATION_VERSION)
    requires: tuple[str, ...] = written_features()


class Verified(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record up to where one table was last found equal, every row of it: kept until a later
    verification.

    It holds for the target's version ``target_version`` under ``app_id``, and for the results of
    our own merges into it; `planner.verified` checks for external commits since. Its rows were read
    after as many ``doubts`` as `TableState` counts: it ends these. ``target_commit``: sha256 in hex
    of that version's file in the target's log, "" where it was not there to be read.
    """

    table: str
    seq: int
    manifest_number: int
    target_version: int
    app_id: str
    verify_id: str
    source_time_us: int | None = None
    doubts: int = 0
    target_commit: str = ""
    version: int = written_version(VERIFICATION_VERSION)
    requires: tuple[str, ...] = written_features()


def encode_verify_plan(plan: VerifyPlan) -> bytes:
    return msgspec.json.encode(plan)


def decode_verify_plan(raw: bytes, at: str = "") -> VerifyPlan:
    """Decode a plan; CorruptData for bytes that are not one, or that need a newer reader."""
    return _PLANS.read(raw, at)


def encode_verification(result: Verification) -> bytes:
    return msgspec.json.encode(result)


def decode_verification(raw: bytes, at: str = "") -> Verification:
    """Decode a result; raises like `decode_verify_plan`."""
    return _RESULTS.read(raw, at)


def encode_verified(found: Verified) -> bytes:
    return msgspec.json.encode(found)


def decode_verified(raw: bytes, at: str = "") -> Verified:
    """Decode the record of a last equal verification; raises like `decode_verify_plan`."""
    return _VERIFIED.read(raw, at)


_PLANS = DocumentReader(
    VerifyPlan, version=VERIFICATION_VERSION, features=FEATURES, name="verification plan"
)
_RESULTS = DocumentReader(
    Verification, version=VERIFICATION_VERSION, features=FEATURES, name="verification"
)
_VERIFIED = DocumentReader(
    Verified, version=VERIFICATION_VERSION, features=FEATURES, name="verified record"
)
