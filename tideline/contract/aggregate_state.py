"""The checkpoint of a state that documents are made from: an index of the objects that hold it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tideline.contract.document import (
    DocumentReader,
    with_checksum,
    written_features,
    written_version,
)

_VERSION = 1


class StateChunk(msgspec.Struct, frozen=True):
    """An object with lines of the state; ``digest`` is of its bytes."""

    key: str
    digest: str


class StateIndex(msgspec.Struct, frozen=True):
    """The state behind manifest ``manifest_number``, which has that ``manifest_digest``.

    ``emitted_seq``: all documents up to it were published or left out. ``base_seq``: the state
    began behind it; 0: at the chain's beginning. ``dumped``, ``generations``, ``schemas``: by table
    the delete-before sequence of its last whole dump, the generation's sequence, and the
    fingerprint of its schema.
    """

    incarnation: str
    manifest_number: int
    manifest_digest: str
    emitted_seq: int
    base_seq: int
    dumped: Mapping[str, int]
    generations: Mapping[str, int]
    schemas: Mapping[str, str]
    chunks: tuple[StateChunk, ...]
    version: int = written_version(_VERSION)
    requires: tuple[str, ...] = written_features()


_READER = DocumentReader(
    StateIndex, version=_VERSION, features=frozenset(), name="state of aggregates"
)


def stored_index(index: StateIndex) -> bytes:
    """Return the bytes that the store holds of it."""
    return with_checksum(msgspec.json.encode(index))


def decode_index(raw: bytes, at: str) -> StateIndex:
    """Decode the index that lies ``at`` a key; CorruptData for bytes that are not one."""
    return _READER.read(raw, at)
