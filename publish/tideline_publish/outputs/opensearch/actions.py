"""Events as actions of a bulk request: index a document, or delete it, each with its version."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tideline.contract.errors import Misconfigured
from tideline_publish.events import ChangeEvent

_ID_BYTES_MAX = 512


class _Value(msgspec.Struct):
    """An event in Tideline's own form, as far as it is read."""

    key: dict[str, msgspec.Raw] | None = None
    row: dict[str, msgspec.Raw] | None = None
    before: dict[str, msgspec.Raw] | None = None
    unchanged: tuple[str, ...] = ()
    overflow: Mapping[str, str] = {}


_VALUES = msgspec.json.Decoder(_Value)


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action for ``event``, as lines of a bulk request."""

    event: ChangeEvent
    lines: bytes


def action_of(event: ChangeEvent, index: str, sequence_field: str) -> BulkAction:
    """Return the action for the change of a row, or of a document. Raises Misconfigured for one
    that has no identity, or is not whole."""
    assert event.value is not None
    value = _VALUES.decode(event.value)
    if not value.key:
        raise Misconfigured(
            f"{event.table} has no key, and its rows no identity in an index",
            hint="leave it out (publish.….exclude_tables), or give it a key",
        )
    head = {
        "_index": index,
        "_id": document_id(value.key),
        "version": event.seq,
        "version_type": "external",
    }
    if value.row is None:
        return BulkAction(event, msgspec.json.encode({"delete": head}) + b"\n")
    found = _whole(event, value, value.row)
    if sequence_field in found:
        raise Misconfigured(
            f"{event.table} has a column {sequence_field}, the name of the sequence's field",
            hint="choose another name: opensearch.sequence_field",
        )
    found[sequence_field] = msgspec.Raw(b"%d" % event.seq)
    lines = (msgspec.json.encode({"index": head}), msgspec.json.encode(found), b"")
    return BulkAction(event, b"\n".join(lines))


def document_id(key: Mapping[str, msgspec.Raw]) -> str:
    """Return the id of the document of the row with ``key``: the text of its only column, or the
    JSON array of several; a digest of it where that is longer than ids may be."""
    values = [msgspec.json.decode(one) for one in key.values()]
    only = values[0] if len(values) == 1 else None
    if isinstance(only, str) and only:
        text = only
    elif len(values) == 1 and only != "":
        text = bytes(*key.values()).decode()
    else:
        text = f"[{','.join(bytes(one).decode() for one in key.values())}]"
    if len(text.encode()) <= _ID_BYTES_MAX:
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _whole(
    event: ChangeEvent, value: _Value, row: dict[str, msgspec.Raw]
) -> dict[str, msgspec.Raw]:
    """Return the row with the values that the log left out, which those before it were, and the
    texts of values without a type."""
    found = dict(row)
    for name in value.unchanged:
        if name not in (value.before or {}):
            raise Misconfigured(
                f"change {event.seq} of {event.table} lacks its column {name}, which the source's"
                " log left out: the document would lose it",
                hint="publish an aggregate of this table alone, which keeps the values"
                " (docs/AGGREGATES.md); or have the log hold whole rows, with before_image ="
                ' "full" (docs/PUBLISHING.md#opensearch)',
            )
        found[name] = (value.before or {})[name]
    for name, text in value.overflow.items():
        found[name] = msgspec.Raw(msgspec.json.encode(text))
    return found
