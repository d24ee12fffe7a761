"""The manifest, the commit record of a segment: document (a), with the source position (b) in it.

A pipeline's history is a chain of manifests, numbered contiguously from 1, each naming the digest
of the one before. A manifest holds whole transactions only. The open state is in it in full every
so often, and from there on derived from the manifests that follow (`roll_forward`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from tideline.contract.document import (
    DocumentReader,
    placed,
    with_checksum,
    written_features,
    written_version,
)
from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.messages import FEATURE as MESSAGES_FEATURE
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.part import PartCounts
from tideline.contract.position import SourceIdentity, SourcePosition, may_follow
from tideline.contract.request import Answer
from tideline.contract.sequence import SequenceRange
from tideline.contract.steps import ColumnStep

MANIFEST_VERSION = 1
FEATURES = frozenset({MESSAGES_FEATURE})
"""The optional features that this version understands."""
STATE_DISTANCE_MAX = 256
RECENT_ANSWERS_MAX = 256


class ManifestKind(StrEnum):
    SEGMENT = "segment"
    TAKEOVER = "takeover"
    HEARTBEAT = "heartbeat"


class Part(PartCounts, frozen=True, omit_defaults=True):
    """One Parquet file: the rows of one table and schema version in this segment, in seq order.

    ``operations`` counts rows by ``_tl_op``. ``key_min`` and ``key_max`` bound the first key
    column, before-keys included, as text; they are None where the type has no order that every
    reader shares (only integers, dates and timestamps do).
    """

    key: str
    table: str
    schema: str
    rows: int
    operations: Mapping[str, int]
    bytes: int
    digest: str
    first_seq: int
    last_seq: int
    key_min: str | None = None
    key_max: str | None = None


class VerificationChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chunk that was read to verify ``table``, for the request of that id: chunk ``chunk``,
    counted from 0, of its rows between ``after_key`` (not included; None: from the beginning) and
    ``last_key`` (included), keys as the source's text and in its order. It consumes no sequences.

    The rows are those that the source had after the change ``low_seq``, except keys that later
    changes up to ``high_seq`` touched. They are in a Parquet file at ``key``, None without any:
    with ``_tl_op`` ``r``; with ``d`` the asked-for keys that the source does not have. ``skipped``:
    not in the sample, nothing was read but ``last_key``. ``complete``: it is the last one.
    ``phase`` ``keys``: asked-for keys were read, which have no range.
    """

    request_id: str
    table: str
    schema: str
    chunk: int
    low_seq: int
    high_seq: int
    key: str | None = None
    rows: int = 0
    bytes: int = 0
    digest: str = ""
    after_key: tuple[str, ...] | None = None
    last_key: tuple[str, ...] | None = None
    complete: bool = False
    skipped: bool = False
    phase: Literal["rows", "keys"] = "rows"


class SchemaEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of schema: from ``seq`` on the table's rows have schema ``after`` (a fingerprint).

    ``before`` is None for a table seen for the first time. ``verdict`` is a `schema.Verdict`.
    ``statement`` is the DDL that the log holds here, if the source logs DDL; what it did to the
    columns may be known only with the next event of the table, then ``after`` equals ``before``.
    ``steps`` are what happened to the columns, in an order in which they can be carried out.
    """

    seq: int
    table: str
    after: str
    before: str | None = None
    verdict: str = "neutral"
    changes: tuple[str, ...] = ()
    statement: str | None = None
    steps: tuple[ColumnStep, ...] = ()


class Truncate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A truncate: all rows of the table with a smaller sequence number are gone. ``tx``: the
    transaction, as that of rows; 0 where it is one of its own, or not known."""

    seq: int
    table: str
    tx: int = 0


class Copied(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished dump of a table without a key: a copy of its state at the delete-before
    sequence.

    Its ``rows`` have op ``r`` and sequences above that and up to ``last_seq``, in manifests after
    ``first_manifest``; no other dump's lie among them. ``seen``: ranges (first, last) of sequences
    above it whose changes the copy already has.
    """

    first_manifest: int
    last_seq: int
    rows: int
    seen: tuple[tuple[int, int], ...] = ()


class DeleteBefore(msgspec.Struct, frozen=True, omit_defaults=True):
    """A delete-complete dump finished: rows with ``_tl_seq <= seq`` are no longer in the source.

    ``seq`` is the dump's ``first_low_seq``. ``copied`` is there for tables without a key.
    """

    table: str
    seq: int
    request_id: str
    copied: Copied | None = None


class Manifest(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"deletes_before": "floors", "verification_chunks": "checks"},
):
    """A manifest, one entry of the chain. Empty manifests have ``first_seq == last_seq + 1``.

    ``source_time_us`` is the source's clock in the newest of our heartbeats contained so far, µs
    since 1970 UTC (readers want `through_us`), ``written_at_us`` the writer's clock. ``uploading``
    lists the part prefixes (numbers) of an unfinished huge transaction. ``released``: the writer
    stopped cleanly and a successor need not wait. ``logged_messages`` are parts of logical messages
    (`tideline.contract.messages`), which no warehouse reads.
    """

    pipeline: str
    incarnation: str
    manifest_number: int
    term: int
    writer: str
    previous_digest: str
    kind: ManifestKind
    first_seq: int
    last_seq: int
    position: SourcePosition
    identity: SourceIdentity
    version: int = written_version(MANIFEST_VERSION)
    requires: tuple[str, ...] = written_features()
    source_time_us: int | None = None
    written_at_us: int | None = None
    parts: tuple[Part, ...] = ()
    schema_events: tuple[SchemaEvent, ...] = ()
    truncates: tuple[Truncate, ...] = ()
    deletes_before: tuple[DeleteBefore, ...] = ()
    accepted: tuple[str, ...] = ()
    finished: tuple[Answer, ...] = ()
    refused: tuple[Answer, ...] = ()
    state: OpenState | None = None
    state_at: int | None = None
    uploading: tuple[int, ...] = ()
    released: bool = False
    verification_chunks: tuple[VerificationChunk, ...] = ()
    logged_messages: tuple[Part, ...] = ()

    @property
    def seqs(self) -> SequenceRange:
        return SequenceRange(self.first_seq, self.last_seq)

    @property
    def through_us(self) -> int | None:
        """The source's clock (µs UTC) up to which the chain lacks nothing; None: not known.

        None, too, where the source's clock was ahead of the writer's own: what a future time lacks
        is not known. (Workers no longer write such a time; older chains have it.)
        """
        if self.source_time_us is None or self.written_at_us is None:
            return self.source_time_us
        return min(self.source_time_us, self.written_at_us)


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode the manifest as canonical bytes."""
    check_manifest(manifest)
    return msgspec.json.encode(manifest)


def stored_manifest(manifest: Manifest) -> bytes:
    """Return the bytes that the store holds of it from its first writing on: the canonical ones
    with their checksum. The digest that the next manifest names is of these."""
    return with_checksum(encode_manifest(manifest))


_READER = DocumentReader(Manifest, version=MANIFEST_VERSION, features=FEATURES, name="manifest")


def decode_manifest(raw: bytes, at: str = "") -> Manifest:
    """Decode and check a manifest; CorruptData for bytes that are not one.

    A manifest that requires a feature unknown here is refused by name: readers are upgraded first.
    """
    manifest = _READER.read(raw, at)
    try:
        check_manifest(manifest)
    except InvariantBroken as error:
        raise CorruptData(placed(error.message, at), error.hint) from None
    return manifest


def digest(raw: bytes) -> str:
    """Return the sha256 in hex of raw bytes, of manifests and of parts."""
    return hashlib.sha256(raw).hexdigest()


def check_manifest(manifest: Manifest) -> None:
    """Raise InvariantBroken unless the manifest is consistent in itself."""
    number = manifest.manifest_number
    seqs = manifest.seqs
    begins = number == 1
    if number < 1 or manifest.term < 1 or begins != (manifest.previous_digest == ""):
        raise InvariantBroken(f"manifest {number}: number, term and previous digest do not agree")
    if begins and (seqs.first != 1 or manifest.state is None):
        raise InvariantBroken("manifest 1: a chain begins with sequence 1 and its state in full")
    rows = 0
    if bool(manifest.logged_messages) != (MESSAGES_FEATURE in manifest.requires):
        raise InvariantBroken(f"manifest {number}: messages, and what it requires, do not agree")
    for part in (*manifest.parts, *manifest.logged_messages):
        rows += part.rows
        if sum(part.operations.values()) != part.rows or part.rows < 1:
            raise InvariantBroken(f"manifest {number}: part counts differ, of {part.key}")
        if not seqs.first <= part.first_seq <= part.last_seq <= seqs.last:
            raise InvariantBroken(f"manifest {number}: part outside its sequences, {part.key}")
    minted = [event.seq for event in manifest.schema_events]
    minted += [truncate.seq for truncate in manifest.truncates]
    for seq in minted:
        if not seqs.first <= seq <= seqs.last:
            raise InvariantBroken(f"manifest {number}: event {seq} outside its sequences")
    if rows + len(minted) != len(seqs):
        raise InvariantBroken(
            f"manifest {number}: {rows} rows and {len(minted)} events in {len(seqs)} sequences"
        )
    for chunk in manifest.verification_chunks:
        _check_verification_chunk(chunk, number, seqs)
    if (manifest.state is None) == (manifest.state_at is None):
        raise InvariantBroken(f"manifest {number}: neither or both of state and state_at")
    nearest = max(1, number - STATE_DISTANCE_MAX)
    if manifest.state_at is not None and not nearest <= manifest.state_at < number:
        raise InvariantBroken(f"manifest {number}: state_at {manifest.state_at} is out of reach")


def _check_verification_chunk(chunk: VerificationChunk, number: int, seqs: SequenceRange) -> None:
    """Check a verification part, which has no sequences: it only says between which it was read."""
    where = f"manifest {number}: the verification part of chunk {chunk.chunk} of {chunk.table}"
    if not 0 <= chunk.low_seq <= chunk.high_seq <= seqs.last or chunk.chunk < 0:
        raise InvariantBroken(f"{where} lies outside the chain's sequences")
    if (chunk.rows > 0) != (chunk.key is not None) or (chunk.skipped and chunk.rows):
        raise InvariantBroken(f"{where} and its rows do not agree")


def check_entry(previous: Manifest, previous_raw: bytes, manifest: Manifest) -> None:
    """Raise CorruptData unless ``manifest`` is the lawful successor of ``previous``."""
    wrong = [
        name
        for name, holds in (
            ("manifest_number", manifest.manifest_number == previous.manifest_number + 1),
            ("previous_digest", manifest.previous_digest == digest(previous_raw)),
            ("first_seq", manifest.first_seq == previous.last_seq + 1),
            ("incarnation", manifest.incarnation == previous.incarnation),
            ("term", manifest.term == previous.term + (manifest.kind is ManifestKind.TAKEOVER)),
            ("position", _position_follows(previous, manifest)),
        )
        if not holds
    ]
    if wrong:
        raise CorruptData(
            f"manifest {manifest.manifest_number} does not follow its predecessor:"
            f" {', '.join(wrong)}",
            hint="was the store restored from a backup while a worker ran, stop every worker and"
            " remove this manifest and all newer ones (docs/RESTORE.md)",
        )


def _position_follows(previous: Manifest, manifest: Manifest) -> bool:
    """Return whether the position follows. Positions are ordered on one server only; a failover is
    to another one, whose log has another order."""
    if manifest.identity != previous.identity:
        return True
    return may_follow(manifest.position, previous.position)


def tables_in(manifest: Manifest) -> set[str]:
    """Return the tables that the manifest holds anything of."""
    return {
        item.table
        for items in (
            manifest.parts,
            manifest.schema_events,
            manifest.truncates,
            manifest.deletes_before,
        )
        for item in items
    }


def roll_forward(state: OpenState, later: Iterable[Manifest]) -> OpenState:
    """Return the open state after ``later``, manifests in order that carry no state of their own.

    Only the last manifest with data of each table moves, which such manifests may change without
    restating the state. For anything else the writer must write the full state.
    """
    tables = dict(state.tables)
    for manifest in later:
        for table in tables_in(manifest):
            before = tables.get(table, TableState())
            number = manifest.manifest_number
            tables[table] = msgspec.structs.replace(before, last_data_manifest=number)
    return msgspec.structs.replace(state, tables=tables)
