"""Events as records of Kinesis; of those that are too large, a reference to the row."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import msgspec

from tideline.contract.errors import Misconfigured
from tideline.settings.outputs.kinesis import KinesisSettings
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.kinesis.lanes import OutgoingRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _RowReference(msgspec.Struct):
    """The object in the store, a part, and the sequence that the row has in it."""

    object: str
    seq: int


class _EventByReference(msgspec.Struct, omit_defaults=True):
    op: str
    table: str
    seq: int
    part: int
    tx: int
    at: str
    reference: _RowReference
    key: msgspec.Raw | None = None


def record_of(event: ChangeEvent, settings: KinesisSettings) -> OutgoingRecord:
    """Return the record of ``event``. Raises Misconfigured for one that is too large."""
    place = partition_key(event)
    whole = OutgoingRecord(place, event.value or b"")
    if whole.bytes <= settings.record_bytes_max:
        return whole
    if settings.by_reference and event.object_key:
        short = OutgoingRecord(place, msgspec.json.encode(_reference(event)))
        if short.bytes <= settings.record_bytes_max:
            return short
    raise Misconfigured(
        f"the event of change {event.seq} of {event.table} makes a record of {whole.bytes} bytes,"
        f" more than kinesis.record_bytes_max ({settings.record_bytes_max})",
        hint="set kinesis.by_reference = true; or raise the limit, and that of the stream"
        " (MaxRecordSizeInKiB); or leave a column out (publish.….columns)",
    )


def partition_key(event: ChangeEvent) -> str:
    """Return the hash of the row's key, which shows nothing of it; of a table without a key, and of
    a truncate, that of the table."""
    text = event.table.encode() + b"\0" + (event.key or b"")
    return hashlib.sha256(text).hexdigest()[:32]


def _reference(event: ChangeEvent) -> _EventByReference:
    at = _EPOCH + timedelta(microseconds=event.ts_us)
    return _EventByReference(
        op=event.op,
        table=event.table,
        seq=event.seq,
        part=event.part,
        tx=event.tx,
        at=at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        reference=_RowReference(event.object_key, event.seq),
        key=None if event.key is None else msgspec.Raw(event.key),
    )
