"""Checkpoints of the state in the store: written whole, under names of their own, then indexed.

An index is created last, so what it names is there. The newest two are kept: of a worker that was
killed behind one, the logged position may be before it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import structlog

from tideline.contract import layout
from tideline.contract.aggregate_state import StateChunk, StateIndex, decode_index, stored_index
from tideline.contract.aggregates import Aggregate
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import digest
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore
from tideline_publish.aggregates.tracker import AggregateTracker

KEPT = 2
_CHUNK_BYTES = 16 * 1024 * 1024
"""Of lines, before they are compressed."""

log = structlog.get_logger("tideline.publisher")


class _StateLine(NamedTuple):
    """A row; or, without a table, a root that is due, whose aggregate and ``existed`` are in
    ``number`` and ``body``."""

    table: str
    key: str
    number: int
    body: msgspec.Raw


_LINES = msgspec.json.Decoder(_StateLine)


class Checkpoints:
    """The checkpoints of one publisher for one definition. Every method raises like the store."""

    def __init__(
        self, store: ObjectStore, pipeline: str, publisher: str, aggregates: Sequence[Aggregate]
    ) -> None:
        self._store = store
        self._prefix = layout.publisher_state_prefix(pipeline, publisher)
        prints = "".join(one.fingerprint for one in aggregates)
        self._folder = f"{self._prefix}/{hashlib.sha256(prints.encode()).hexdigest()[:16]}"

    def usable(self, chain: Chain, through: int, incarnation: str) -> Iterator[StateIndex]:
        """Yield the indexes up to manifest ``through`` that are of this chain, the newest
        first."""
        for number in self._numbers():
            if number > through:
                continue
            key = self._index_key(number)
            raw = self._store.get(key)
            entry = chain.read(number)
            if raw is None or entry is None:
                continue
            index = decode_index(raw, key)
            if (index.incarnation, index.manifest_digest) == (incarnation, entry.digest):
                yield index

    def load(self, index: StateIndex, tracker: AggregateTracker) -> Iterator[None]:
        """Load a state into one that is empty, an object at a time. CorruptData for one that is
        missing or damaged."""
        for chunk in index.chunks:
            raw = self._store.get(chunk.key)
            if raw is None or digest(raw) != chunk.digest:
                raise CorruptData(f"{chunk.key} is missing, or is not as its index has it")
            for line in _LINES.decode_lines(zlib.decompress(raw)):
                if line.table:
                    tracker.state.load_row(line.table, line.key, line.number, bytes(line.body))
                else:
                    existed = bytes(line.body) == b"true"
                    tracker.state.mark(line.number, line.key, existed=existed)
            yield

    def write(self, tracker: AggregateTracker, entry: ManifestEntry, nonce: str) -> Iterator[None]:
        """Write the state behind the manifest ``entry``, an object at a time. It is durable, and
        older ones are removed, when this ends."""
        number = entry.manifest.manifest_number
        chunks: list[StateChunk] = []
        for lines in _in_chunks(_lines(tracker)):
            raw = zlib.compress(lines, level=1)
            key = f"{self._folder}/{number:020d}-{nonce}/{len(chunks):06d}"
            self._store.put(key, raw)
            chunks.append(StateChunk(key, digest(raw)))
            yield
        index = StateIndex(
            entry.manifest.incarnation,
            number,
            entry.digest,
            tracker.emitted_seq,
            tracker.complete.base_seq,
            tracker.complete.dumped,
            tracker.generations,
            {name: schema.fingerprint for name, schema in tracker.schemas.items()},
            tuple(chunks),
        )
        self._store.put(self._index_key(number), stored_index(index))
        yield
        self._remove_older(number)

    def _remove_older(self, number: int) -> None:
        """Remove all but the newest checkpoints up to ``number``; indexes first."""
        kept = [one for one in self._numbers() if one <= number][:KEPT]
        names = tuple(f"{self._folder}/{one:020d}" for one in kept)
        found = [
            entry.key
            for page in self._store.entries(self._prefix)
            for entry in page
            if not entry.key.startswith(names)
        ]
        for key in sorted(found, key=lambda one: not one.endswith(".json")):
            self._store.delete(key)

    def _numbers(self) -> list[int]:
        """Return the manifests of the indexes that are there, the newest first."""
        found = [
            int(name.removesuffix(".json"))
            for page in self._store.entries(self._folder)
            for entry in page
            if (name := entry.key.rpartition("/")[2]).endswith(".json")
        ]
        return sorted(found, reverse=True)

    def _index_key(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"


def _lines(tracker: AggregateTracker) -> Iterator[_StateLine]:
    for table, key, seq, body in tracker.state.dumped_rows():
        yield _StateLine(table, key, seq, msgspec.Raw(body))
    for root in tracker.state.due():
        existed = msgspec.Raw(b"true" if root.existed else b"false")
        yield _StateLine("", root.key, root.aggregate, existed)


def _in_chunks(lines: Iterator[_StateLine]) -> Iterator[bytes]:
    held, size = [], 0
    for line in lines:
        held.append(msgspec.json.encode(line))
        size += len(held[-1])
        if size >= _CHUNK_BYTES:
            yield b"\n".join(held)
            held, size = [], 0
    if held:
        yield b"\n".join(held)
