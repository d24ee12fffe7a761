"""The chain of manifests in the store: append, read, find the tail.

Manifests are numbered contiguously from 1 and never deleted, so the tail is found by name, in a
number of requests that grows with the logarithm of the distance. Appending is a create-only PUT:
of all workers that try a number, one succeeds, and every other one learns that it is fenced.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tideline.contract import layout
from tideline.contract.errors import CorruptData, Fenced, TidelineError, Unavailable
from tideline.contract.manifest import (
    Manifest,
    OpenState,
    check_link,
    decode_manifest,
    digest,
    encode_manifest,
    roll_forward,
)
from tideline.contract.schema import TableSchema, decode_schema, encode_schema
from tideline.store.objects import ObjectStore

_READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Link:
    """A manifest as it is in the store; ``digest`` covers exactly ``raw``."""

    manifest: Manifest
    raw: bytes
    digest: str


class Chain:
    """One pipeline's chain. Every method raises Unavailable and Misconfigured like the store."""

    def __init__(self, store: ObjectStore, pipeline: str) -> None:
        self._store = store
        self._pipeline = pipeline

    def read(self, number: int) -> Link | None:
        """Manifest ``number``; None when there is none (yet), CorruptData when it is not one."""
        key = layout.manifest_key(self._pipeline, number)
        raw = self._store.get(key)
        if raw is None:
            return None
        manifest = decode_manifest(raw)
        if (manifest.pipeline, manifest.manifest_number) != (self._pipeline, number):
            raise CorruptData(
                f"{key} holds manifest {manifest.manifest_number} of pipeline {manifest.pipeline}"
            )
        return Link(manifest, raw, digest(raw))

    def tail(self, hint: int = 0) -> Link | None:
        """The newest manifest, None for a pipeline that has none.

        ``hint`` is a number that existed, or may; a wrong one costs requests only.
        """
        number = self._tail_number(hint)
        link = self.read(max(number, 1))  # an empty chain is read, so that a lost bucket is told
        if link is None and number > 0:
            raise CorruptData(f"manifest {number} of {self._pipeline} vanished")
        return link

    def links(self, first: int, last: int) -> Iterator[Link]:
        """Manifests ``first..last`` in order, each checked against the one before it.

        CorruptData for a hole and for a manifest that does not follow its predecessor.
        """
        previous: Link | None = None
        for link in self._read_ahead(first, last):
            if previous is not None:
                check_link(previous.manifest, previous.raw, link.manifest)
            yield link
            previous = link

    def append(self, manifest: Manifest) -> Link:
        """Write ``manifest`` under its number; when this returns it is durable.

        Raises Fenced when another manifest stands there: the caller stops, and confirms nothing.
        After Unavailable the manifest may be in the store or not: append the same one again.
        """
        raw = encode_manifest(manifest)
        key = layout.manifest_key(self._pipeline, manifest.manifest_number)
        if not self._store.create(key, raw):
            found = self._store.get(key)
            if found is None:
                raise Unavailable(f"{key} exists but cannot be read yet")
            if found != raw:
                raise _fenced(manifest, found)
        return Link(manifest, raw, digest(raw))

    def open_state(self, link: Link) -> OpenState:
        """The open state after ``link``: its own, or that of ``state_at`` rolled forward."""
        manifest = link.manifest
        if manifest.state is not None or manifest.state_at is None:
            return manifest.state or OpenState()
        earlier = list(self.links(manifest.state_at, manifest.manifest_number - 1))
        check_link(earlier[-1].manifest, earlier[-1].raw, manifest)
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
        key = layout.schema_key(self._pipeline, schema.fingerprint)
        if not self._store.create(key, raw) and self._store.get(key) != raw:
            raise CorruptData(f"another schema lies at {key}")
        return schema.fingerprint

    def read_schema(self, fingerprint: str) -> TableSchema:
        """The schema of that fingerprint; CorruptData when it is missing or another."""
        key = layout.schema_key(self._pipeline, fingerprint)
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

    def _exists(self, number: int) -> bool:
        return self._store.exists(layout.manifest_key(self._pipeline, number))

    def _tail_number(self, hint: int) -> int:
        """Gallop away from ``hint`` until the tail lies between two numbers, then bisect."""
        known, step = max(hint, 0), 1
        if known == 0 or self._exists(known):
            low = known
            while self._exists(known + step):
                low, step = known + step, step * 2
            high = known + step
        else:
            high = known
            while known - step > 0 and not self._exists(known - step):
                high, step = known - step, step * 2
            low = max(known - step, 0)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._exists(middle) else (low, middle)
        return low

    def _read_ahead(self, first: int, last: int) -> Iterator[Link]:
        with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="chain") as pool:
            for start in range(first, last + 1, _READS_AT_ONCE):
                numbers = range(start, min(start + _READS_AT_ONCE, last + 1))
                for number, link in zip(numbers, pool.map(self.read, numbers), strict=True):
                    if link is None:
                        raise CorruptData(
                            f"manifest {number} of {self._pipeline} is missing",
                            hint="manifests are never deleted: restore it from a backup",
                        )
                    yield link


def _fenced(manifest: Manifest, found: bytes) -> Fenced:
    try:
        other = decode_manifest(found)
        who = f"by writer {other.writer} of term {other.term}"
    except TidelineError:
        who = "with bytes that are no manifest"
    return Fenced(
        f"manifest {manifest.manifest_number} was already written {who};"
        f" this is writer {manifest.writer} of term {manifest.term}",
        hint="another worker owns the chain; this one must stop",
    )
