"""Events of an outbox as JSON documents, for outputs whose records are a value and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tideline_publish.events import ChangeEvent


class _Envelope(msgspec.Struct, omit_defaults=True):
    """``payload`` is null for a tombstone. What is no text in UTF-8 is in Base64 instead."""

    seq: int
    topic: str
    key: str
    headers: Mapping[str, str]
    payload: str | msgspec.UnsetType | None = msgspec.UNSET
    payload_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    headers_base64: Mapping[str, bytes] = {}


def in_envelopes(events: Sequence[ChangeEvent]) -> Iterator[ChangeEvent]:
    """Yield the events, those with a route as documents that hold route, key, headers and value;
    their keys are JSON, too."""
    return (_enclosed(event) if event.route else event for event in events)


def _enclosed(event: ChangeEvent) -> ChangeEvent:
    texts = {name: _text(value) for name, value in event.headers}
    key = (event.key or b"").decode()
    envelope = _Envelope(
        event.seq,
        event.route,
        key,
        {name: text for name, text in texts.items() if text is not None},
        headers_base64={name: value for name, value in event.headers if texts[name] is None},
    )
    text = None if event.value is None else _text(event.value)
    if event.value is not None and text is None:
        envelope.payload_base64 = event.value
    else:
        envelope.payload = text
    return replace(event, key=msgspec.json.encode(key), value=msgspec.json.encode(envelope))


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
