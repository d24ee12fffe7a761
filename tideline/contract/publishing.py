"""A publisher's position in the chain, and the log of its positions: a chain of its own.

Entries are numbered contiguously from 1 and created only once, as manifests are: of two workers of
one publisher that append the same number, one succeeds and the other learns that it is fenced.
Unlike manifests, old entries are removed; the newest ones stay.
"""

from __future__ import annotations

import msgspec

from tideline.contract.document import (
    DocumentReader,
    with_checksum,
    written_features,
    written_version,
)
from tideline.contract.errors import CorruptData

_VERSION = 1


class ChainPosition(msgspec.Struct, frozen=True):
    """A place in the chain of ``incarnation``: every change up to the sequence ``seq`` lies before
    it, and so does all of manifest ``manifest_number``. ``seq`` may be in the manifest after that.

    ``epoch`` counts how often an operator has moved the publisher: a position that an output keeps
    itself holds only within its epoch.
    """

    incarnation: str
    manifest_number: int
    seq: int
    epoch: int = 0


class PublisherEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the log of a publisher's positions. ``written_at_us`` is the writer's clock (µs
    since 1970 UTC); ``released``: the writer stopped cleanly and a successor need not wait.
    ``events``: how many events all workers have logged as published. ``by_operator``: a command
    wrote it; ``paused``: no worker publishes until one that is not follows. ``dead_letters``: how
    many of the events the writer's output has put aside. ``reason``: why nothing is published;
    the writer waits and tries again, or, where it released it, has stopped.
    ``state_manifest``: the parts of later manifests are needed again, to make the state that
    documents are made from; None: there is no state."""

    publisher: str
    number: int
    writer: str
    position: ChainPosition
    written_at_us: int
    released: bool = False
    events: int = 0
    by_operator: bool = False
    paused: bool = False
    version: int = written_version(_VERSION)
    requires: tuple[str, ...] = written_features()
    dead_letters: int = 0
    reason: str = ""
    state_manifest: int | None = None

    @property
    def parts_through(self) -> int:
        """The manifest up to which no part is needed any more."""
        number = self.position.manifest_number
        return number if self.state_manifest is None else min(number, self.state_manifest)


_READER = DocumentReader(
    PublisherEntry, version=_VERSION, features=frozenset(), name="publisher's position"
)


def stored_entry(entry: PublisherEntry) -> bytes:
    """Return the bytes that the store holds of it."""
    return with_checksum(msgspec.json.encode(entry))


def decode_entry(raw: bytes, at: str) -> PublisherEntry:
    """Decode the entry that lies ``at`` a key; CorruptData for bytes that are not one."""
    entry = _READER.read(raw, at)
    if entry.number < 1 or entry.position.seq < 0 or entry.position.manifest_number < 0:
        raise CorruptData(f"{at} holds a publisher's position that is none")
    return entry
