"""Encodes logical messages as events: a message's content is a JSON object with the fields that an
outbox table has as columns."""

from __future__ import annotations

from functools import partial

import msgspec
import pyarrow as pa

from tideline.contract.messages import CONTENT
from tideline.contract.part import OP, SEQ, TS, TX
from tideline.contract.types import TIMESTAMP
from tideline.settings.outbox import OutboxSettings
from tideline_publish.events import ChangeEvent
from tideline_publish.formats.json_values import json_values
from tideline_publish.outbox.event import EventMaker, InvalidEvent, OutboxChange

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class OutboxMessages:
    """Encodes the messages of parts."""

    def __init__(self, settings: OutboxSettings, maker: EventMaker) -> None:
        self._payload = settings.payload
        self._maker = maker

    def events(self, table: str, rows: pa.RecordBatch, object_key: str) -> list[ChangeEvent]:
        """Return the events of ``rows``, in their order. Raises Misconfigured for a message that is
        no event."""
        times = json_values(rows.column(TS), TIMESTAMP).to_pylist()
        found = []
        for seq, op, tx, ts_us, content, at in zip(
            *(rows.column(name).to_pylist() for name in (SEQ, OP, TX)),
            rows.column(TS).cast(pa.int64()).to_pylist(),
            rows.column(CONTENT).to_pylist(),
            times,
            strict=True,
        ):
            source = OutboxChange(
                seq, table, op, tx, ts_us, object_key, partial(_document, content)
            )
            event = self._event(source, content, at.strip('"').encode())
            if event is not None:
                found.append(event)
        return found

    def _event(self, source: OutboxChange, content: bytes | None, at: bytes) -> ChangeEvent | None:
        try:
            fields = self._fields(content)
        except InvalidEvent as error:
            self._maker.refuse(source, str(error))
            return None
        return self._maker.event(source, fields, at)

    def _fields(self, content: bytes | None) -> dict[str, bytes | None]:
        if content is None:
            raise InvalidEvent("its content was larger than capture.event_bytes_max")
        try:
            found = _OBJECT.decode(content)
        except _UNREADABLE:
            raise InvalidEvent("its content is no JSON object") from None
        return {
            name: _value(name, bytes(raw), name == self._payload) for name, raw in found.items()
        }


def _value(name: str, raw: bytes, as_it_is: bool) -> bytes | None:
    """Return the value of a field: the text of a string, and the JSON of anything else; of fields
    but the payload only numbers and booleans have one. None for null."""
    if raw == b"null":
        return None
    if raw.startswith(b'"'):
        try:
            return msgspec.json.decode(raw, type=str).encode()
        except (*_UNREADABLE, UnicodeEncodeError):
            raise InvalidEvent(f"its field {name} is no text") from None
    if not as_it_is and raw[:1] in (b"{", b"["):
        raise InvalidEvent(f"its field {name} is neither text nor number")
    return raw


def _document(content: bytes | None) -> bytes:
    """Return a message as a JSON document; what is no text is in Base64."""
    if content is None:
        return b'{"content":null}'
    try:
        return msgspec.json.encode({"content": content.decode()})
    except UnicodeDecodeError:
        return msgspec.json.encode({"content_base64": content})
