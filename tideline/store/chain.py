"""The chain of manifests in the store: append, read, find the tail.

Manifests are numbered contiguously from 1 and never deleted, so the tail is found by name, in a
number of requests that grows with the logarithm of the distance. Appending is a create-only PUT:
of all workers that try a number, one succeeds, and every other one learns that it is fenced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tideline.contract import layout
from tideline.contract.block import (
    Block,
    block_of,
    decode_block,
    encode_block,
    manifests_of,
    raw_manifests,
)
from tideline.contract.description import (
    Description,
    decode_description,
    encode_description,
)
from tideline.contract.document import with_checksum
from tideline.contract.errors import CorruptData, Fenced, TidelineError, Unavailable
from tideline.contract.manifest import (
    Manifest,
    check_entry,
    decode_manifest,
    digest,
    roll_forward,
    stored_manifest,
)
from tideline.contract.open_state import OpenState
from tideline.contract.schema import TableSchema, decode_schema, encode_schema
from tideline.store.numbers import newest
from tideline.store.objects import ObjectStore
from tideline.system import Pool, RealSystem, System

_READS_AT_ONCE = 16
_BLOCK_WORTH = 32
"""Manifests of a block that must be wanted before the block itself is read."""


_BLOCK_HINT = (
    "restore the block from a copy of the store; while its parts are there, removing it has it"
    " rolled up again"
)


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A manifest as it is in the store; ``digest`` covers exactly ``raw``."""

    manifest: Manifest
    raw: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class ManifestRange:
    """Entries that were read together; ``block`` is their origin, None: manifests."""

    entries: Sequence[ManifestEntry]
    block: Block | None = None


class Chain:
    """One pipeline's chain. Every method raises Unavailable and Misconfigured like the store.

    Ranges are read ahead in threads of ``system``; None: of this process.
    """

    def __init__(self, store: ObjectStore, pipeline: str, system: System | None = None) -> None:
        self._store = store
        self._system = system or RealSystem()
        self.pipeline = pipeline

    def read(self, number: int) -> ManifestEntry | None:
        """Read manifest ``number``; None when there is none (yet), CorruptData when it is not
        one."""
        key = layout.manifest_key(self.pipeline, number)
        raw = self._store.get(key)
        if raw is None:
            return None
        manifest = decode_manifest(raw, key)
        if (manifest.pipeline, manifest.manifest_number) != (self.pipeline, number):
            raise CorruptData(
                f"{key} holds manifest {manifest.manifest_number} of pipeline {manifest.pipeline}"
            )
        return ManifestEntry(manifest, raw, digest(raw))

    def tail(self, hint: int = 0) -> ManifestEntry | None:
        """Read the newest manifest, None for a pipeline that has none.

        ``hint`` is a number that existed, or may; a wrong one costs requests only.
        """
        number = self.newest_number(hint)
        entry = self.read(max(number, 1))  # an empty chain is read too, to report a lost bucket
        if entry is None and number > 0:
            raise CorruptData(f"manifest {number} of {self.pipeline} vanished")
        return entry

    def newest_number(self, hint: int) -> int:
        """Return the number of the newest manifest, 0 without any; as with `tail` a wrong hint
        costs requests only."""
        return newest(self._exists, hint)

    def entries(self, first: int, last: int) -> Iterator[ManifestEntry]:
        """Yield manifests ``first..last`` in order, each checked against the one before it.

        CorruptData for a hole and for a manifest that does not follow its predecessor.
        """
        for manifest_range in self.ranges(first, last):
            yield from manifest_range.entries

    def ranges(self, first: int, last: int) -> Iterator[ManifestRange]:
        """Yield as `entries`, with the blocks that they were read from: one request per block where
        there are blocks, one per manifest elsewhere, and one more where the last comes from a
        block. A block may be cut at both ends of the range.

        CorruptData for a block that is damaged, or of another chain; a missing one is not needed. A
        caller that stops before the end calls `check_anchor` on the last one.
        """
        before: ManifestRange | None = None
        for manifest_range in self._read_ahead(first, last):
            self._check_entries(before, manifest_range)
            yield manifest_range
            before = manifest_range
        if before is not None:
            self.check_anchor(before.block, before.entries[-1].manifest.manifest_number)

    def _check_entries(self, before: ManifestRange | None, manifest_range: ManifestRange) -> None:
        """Raise CorruptData unless each entry follows the one before it."""
        entries = [*(() if before is None else before.entries[-1:]), *manifest_range.entries]
        try:
            for previous, entry in pairwise(entries):
                check_entry(previous.manifest, previous.raw, entry.manifest)
        except CorruptData:
            if before is not None:  # The block may be of another chain.
                self.check_anchor(before.block, before.entries[-1].manifest.manifest_number)
            raise

    def check_anchor(self, block: Block | None, number: int) -> None:
        """Raise CorruptData where ``block`` has another manifest ``number`` than the chain; digests
        prove all before that. The block may be left of a chain that a restore of the store has
        replaced."""
        if block is None:
            return
        entry = self.read(number)
        if entry is None or entry.digest != block.digests[number - block.first_manifest]:
            raise CorruptData(
                f"{layout.block_key(self.pipeline, block.block_number)} repeats another manifest"
                f" {number} than the chain's",
                hint="the store was restored from a backup, and the block is of the chain before:"
                " remove it, and all newer ones; they are rolled up again",
            )

    def read_block(self, number: int) -> Block | None:
        """Read block ``number``; None when there is none (yet), CorruptData when it is not one."""
        key = layout.block_key(self.pipeline, number)
        raw = self._store.get(key)
        if raw is None:
            return None
        try:
            block = decode_block(raw)
        except CorruptData as error:
            raise CorruptData(f"{key}: {error.message}", error.hint or _BLOCK_HINT) from None
        bounds = (block.first_manifest, block.last_manifest)
        if block.pipeline != self.pipeline or bounds != manifests_of(number):
            raise CorruptData(
                f"{key} holds block {block.block_number} of pipeline {block.pipeline}", _BLOCK_HINT
            )
        return block

    def write_block(self, block: Block) -> None:
        """Make ``block`` durable. Idempotent; CorruptData when another one is there."""
        plain = encode_block(block)
        raw = with_checksum(plain)
        key = layout.block_key(self.pipeline, block.block_number)
        # Older blocks have no checksum.
        if not self._store.create(key, raw) and self._store.get(key) not in (raw, plain):
            raise CorruptData(
                f"another block lies at {key} than the one its manifests and parts give here",
                hint="was the store restored from a backup, the block is of the chain before:"
                " remove it, and it is rolled up again. Else that one holds, and was rolled up by"
                " another version of this program",
            )

    def newest_block(self, hint: int = 0) -> int:
        """Return the number of the newest block, 0 without any; as with `tail` a wrong hint costs
        requests only."""
        return newest(
            lambda number: self._store.exists(layout.block_key(self.pipeline, number)), hint
        )

    def append(self, manifest: Manifest) -> ManifestEntry:
        """Write ``manifest`` under its number; when this returns it is durable.

        Raises Fenced when another manifest stands there: the caller stops, and confirms nothing.
        After Unavailable the manifest may be in the store or not: append the same one again.
        """
        raw = stored_manifest(manifest)
        key = layout.manifest_key(self.pipeline, manifest.manifest_number)
        if not self._store.create(key, raw):
            found = self._store.get(key)
            if found is None:
                raise Unavailable(f"{key} exists but cannot be read yet")
            if found != raw:
                raise _fenced(manifest, found)
        return ManifestEntry(manifest, raw, digest(raw))

    def open_state(self, entry: ManifestEntry) -> OpenState:
        """Read the open state after ``entry``: its own, or that of ``state_at`` rolled forward."""
        manifest = entry.manifest
        if manifest.state is not None or manifest.state_at is None:
            return manifest.state or OpenState()
        earlier = list(self.entries(manifest.state_at, manifest.manifest_number - 1))
        check_entry(earlier[-1].manifest, earlier[-1].raw, manifest)
        state = earlier[0].manifest.state
        if state is None:
            raise CorruptData(
                f"manifest {manifest.manifest_number} names manifest {manifest.state_at} for its"
                " state, which has none"
            )
        return roll_forward(state, [*(item.manifest for item in earlier[1:]), manifest])

    def write_schema(self, schema: TableSchema) -> str:
        """Make ``schema`` durable under its fingerprint, which is returned. Idempotent."""
        raw = encode_schema(schema)
        key = layout.schema_key(self.pipeline, schema.fingerprint)
        if not self._store.create(key, raw) and self._store.get(key) != raw:
            raise CorruptData(f"another schema lies at {key}")
        return schema.fingerprint

    def read_schema(self, fingerprint: str) -> TableSchema:
        """Read the schema of that fingerprint; CorruptData when it is missing or another."""
        key = layout.schema_key(self.pipeline, fingerprint)
        raw = self._store.get(key)
        if raw is None:
            raise CorruptData(f"no schema at {key}")
        try:
            schema = decode_schema(raw)
        except CorruptData:
            raise CorruptData(f"not a schema: {key}") from None
        if schema.fingerprint != fingerprint:
            raise CorruptData(f"{key} holds schema {schema.fingerprint}")
        return schema

    def write_description(self, description: Description) -> None:
        """Make ``description`` durable under its fingerprint. Idempotent."""
        key = layout.description_key(self.pipeline, description.fingerprint)
        self._store.create(key, encode_description(description))

    def read_description(self, fingerprint: str) -> Description:
        """Read the description of that fingerprint; CorruptData when it is missing or another."""
        key = layout.description_key(self.pipeline, fingerprint)
        raw = self._store.get(key)
        if raw is None:
            raise CorruptData(f"no description at {key}")
        description = decode_description(raw, key)
        if description.fingerprint != fingerprint:
            raise CorruptData(f"{key} holds description {description.fingerprint}")
        return description

    def _exists(self, number: int) -> bool:
        return self._store.exists(layout.manifest_key(self.pipeline, number))

    def _read_ahead(self, first: int, last: int) -> Iterator[ManifestRange]:
        with self._system.pool(_READS_AT_ONCE, name="chain") as pool:
            start = first
            while start <= last:
                number = block_of(start)
                end = min(manifests_of(number)[1], last)
                block = self.read_block(number) if end - start + 1 >= _BLOCK_WORTH else None
                if block is not None:
                    yield ManifestRange(_entries_of(block, start, end), block)
                else:
                    yield from self._read_loose(pool, start, end)
                start = end + 1

    def _read_loose(self, pool: Pool, first: int, last: int) -> Iterator[ManifestRange]:
        for start in range(first, last + 1, _READS_AT_ONCE):
            numbers = range(start, min(start + _READS_AT_ONCE, last + 1))
            for number, entry in zip(numbers, pool.map(self.read, numbers), strict=True):
                if entry is None:
                    raise CorruptData(
                        f"manifest {number} of {self.pipeline} is missing",
                        hint="manifests are never deleted: restore it from a backup, or see"
                        " docs/RESTORE.md if one was restored while a worker ran",
                    )
                yield ManifestRange((entry,))


def _entries_of(block: Block, first: int, last: int) -> list[ManifestEntry]:
    """Return the block's entries ``first..last``."""
    try:
        found = list(raw_manifests(block))
    except CorruptData as error:
        raise CorruptData(error.message, _BLOCK_HINT) from None
    wanted = found[first - block.first_manifest : last + 1 - block.first_manifest]
    entries = [ManifestEntry(decode_manifest(raw), raw, covers) for raw, covers in wanted]
    for number, entry in enumerate(entries, first):
        if (entry.manifest.pipeline, entry.manifest.manifest_number) != (block.pipeline, number):
            raise CorruptData(
                f"block {block.block_number} holds manifest {entry.manifest.manifest_number} in the"
                f" place of {number}",
                _BLOCK_HINT,
            )
    return entries


def _fenced(manifest: Manifest, found: bytes) -> Fenced:
    try:
        other = decode_manifest(found)
        who = f"by writer {other.writer} of term {other.term}"
    except TidelineError:
        who = "with bytes that are no manifest"
    return Fenced(
        f"manifest {manifest.manifest_number} was already written {who};"
        f" this is writer {manifest.writer} of term {manifest.term}",
        hint="another worker owns the chain, and this one must stop; where none runs, the store was"
        " restored while one did: see docs/RESTORE.md",
    )
