"""Documents as events, in the forms that publish them: Tideline's own, and CloudEvents around it.

A document has the place of a row: ``{"op": "u", "table": "aggregates.customer", "seq": 7,
"tx": 912, "at": "…", "key": {…}, "row": {…}}``. One that went has no ``row``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from tideline.contract.part import CREATED, DELETED, DUMPED, UPDATED
from tideline_publish.aggregates.tracker import DocumentEvent
from tideline_publish.events import ChangeEvent

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: Mapping[str, str] = {
    CREATED: "tideline.document.created",
    UPDATED: "tideline.document.updated",
    DELETED: "tideline.document.deleted",
    DUMPED: "tideline.document.read",
}

DocumentEncoder = Callable[[str, str, DocumentEvent], bytes]
"""Returns the value of an event: incarnation, the aggregate's table, and the document."""


def encoder_of(form: str, pipeline: str) -> DocumentEncoder:
    """Return the encoder of a form of events (`PublishSettings.format`)."""
    if form == "json":
        return lambda _, table, event: _own(table, event)
    return lambda incarnation, table, event: _cloud_event(pipeline, incarnation, table, event)


def change_event(table: str, event: DocumentEvent, value: bytes) -> ChangeEvent:
    """Return the event of a document with that value."""
    return ChangeEvent(
        event.seq, event.part, table, event.op, event.tx, event.ts_us, event.key, value
    )


def _own(table: str, event: DocumentEvent) -> bytes:
    fields: dict[str, object] = {
        "op": event.op,
        "table": table,
        "seq": event.seq,
        "tx": event.tx,
        "at": _time(event.ts_us),
        "key": msgspec.Raw(event.key),
    }
    if event.document is not None:
        fields["row"] = msgspec.Raw(event.document)
    return msgspec.json.encode(fields)


def _cloud_event(pipeline: str, incarnation: str, table: str, event: DocumentEvent) -> bytes:
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": f"{incarnation}-{event.seq}.{event.part}-{event.op}",
            "source": f"/tideline/{pipeline}",
            "type": _TYPES[event.op],
            "subject": table,
            "datacontenttype": "application/json",
            "time": _time(event.ts_us),
            "sequence": f"{event.seq:020d}",
            "data": msgspec.Raw(_own(table, event)),
        }
    )


def _time(ts_us: int) -> str:
    at = _EPOCH + timedelta(microseconds=ts_us)
    return at.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
