"""Rolls up: a thousand manifests become a block, their many small parts a few larger files.

A merge that catches up, or a rebuild, then reads a few files instead of thousands. Roll-ups run
concurrently with the capture, one block after the other, from what is durable alone: block k once
manifest k · 1000 is. Nothing here could be decided differently by two workers, so the second one
finds what it would have written.

Memory is bounded by a row group, a roll-up and a few parts, whatever the block holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import asdict, replace

from tideline.contract import layout
from tideline.contract.block import Block, make_block, manifests_of
from tideline.contract.errors import CorruptData, Unavailable
from tideline.contract.manifest import Manifest, Part, digest
from tideline.contract.part import total
from tideline.contract.planning.bounds import key_bounds
from tideline.contract.schema import TableSchema, parse_table
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore
from tideline.system import Future, Pool, System
from tideline_capture.rollup_file import RollUpFile

_READS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class RollUpLimits:
    """Limits of a roll-up.

    Parts of ``part_bytes_max`` and more stay; a roll-up is made of parts that together have
    ``file_bytes_max`` at most.
    """

    part_bytes_max: int
    file_bytes_max: int


class RollUps:
    """Writes a pipeline's blocks; ``stopping`` is checked between parts."""

    def __init__(
        self,
        store: ObjectStore,
        chain: Chain,
        limits: RollUpLimits,
        system: System,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._chain = chain
        self._limits = limits
        self._system = system
        self._stopping = stopping
        self._newest: int | None = None

    def advance(self, tail: int) -> Block | None:
        """Write the next block, if manifest ``tail`` (which is durable) is not before its end.

        Returns it, None when there is none to write. If it is killed, or raises, nothing is half
        done: the next call finds what was written. Raises Unavailable when it is stopping,
        CorruptData for parts that are not what their manifest says, and for a block that another
        worker wrote differently.
        """
        if self._newest is not None and manifests_of(self._newest + 1)[1] > tail:
            return None
        self._newest = self._chain.newest_block(self._newest or 0)
        first, last = manifests_of(self._newest + 1)
        if last > tail:
            return None
        # The one before is read, so that the block is known to follow it.
        entries = list(self._chain.entries(max(first - 1, 1), last))[-(last - first + 1) :]
        manifests = [entry.manifest for entry in entries]
        files = self._files(self._newest + 1, manifests)
        block = make_block([(entry.manifest, entry.raw) for entry in entries], files)
        self._chain.write_block(block)
        self._newest += 1
        return block

    def _files(self, number: int, manifests: Sequence[Manifest]) -> list[Part]:
        found: list[Part] = []
        schemas: dict[str, TableSchema] = {}
        with self._system.pool(_READS_AT_ONCE, name="roll-up") as pool:
            for group in grouped((p for m in manifests for p in m.parts), self._limits):
                if len(group) > 1:
                    name = group[0].schema
                    schemas[name] = schemas.get(name) or self._chain.read_schema(name)
                    found += self._roll(pool, manifests[0].pipeline, number, group, schemas[name])
                else:
                    found += group
        return found

    def _roll(
        self,
        pool: Pool,
        pipeline: str,
        number: int,
        group: Sequence[Part],
        schema: TableSchema,
    ) -> list[Part]:
        """Write the roll-up of ``group``; return it, and those of the group whose objects are
        gone."""
        file = RollUpFile(schema, group)
        gone = []
        for part, raw in self._read(pool, group):
            if raw is None:
                gone.append(part)
            else:
                file.add(part, raw)
        if len(file.parts) < 2:
            return list(group)
        data = file.finish()
        table = parse_table(schema.table)
        key = layout.rollup_key(pipeline, number, table, schema.fingerprint, digest(data))
        if not self._store.create(key, data) and self._store.get(key) != data:
            raise CorruptData(f"{key} holds other bytes than its name says")
        return [*gone, rolled_part(file.parts, schema, key, data)]

    def _read(self, pool: Pool, group: Iterable[Part]) -> Iterator[tuple[Part, bytes | None]]:
        """Read each part's bytes, a few parts ahead; None when the object is gone."""
        left = iter(group)
        ahead: list[tuple[Part, Future[bytes | None]]] = []
        try:
            while True:
                for part in islice(left, _READS_AT_ONCE - len(ahead)):
                    ahead.append((part, pool.submit(self._store.get, part.key)))
                if not ahead:
                    return
                if self._stopping():
                    raise Unavailable("stopped while rolling up")
                part, future = ahead.pop(0)
                yield part, future.result()
        finally:
            for _, future in ahead:
                future.cancel()


def grouped(parts: Iterable[Part], limits: RollUpLimits) -> list[list[Part]]:
    """Group ``parts`` by future file; a part that stays is alone in its group.

    Parts are in the order of their manifests, in which those of one table and schema follow one
    another in sequence; one that does not stays.
    """
    series: dict[tuple[str, str], list[list[Part]]] = defaultdict(list)
    sizes: Counter[tuple[str, str]] = Counter()  # of the last group
    alone: list[list[Part]] = []
    for part in parts:
        name = part.table, part.schema
        groups = series[name]
        follows = not groups or groups[-1][-1].last_seq < part.first_seq
        if part.bytes >= limits.part_bytes_max or not follows:
            alone.append([part])
        elif groups and sizes[name] + part.bytes <= limits.file_bytes_max:
            groups[-1].append(part)
            sizes[name] += part.bytes
        else:
            groups.append([part])
            sizes[name] = part.bytes
    return [*alone, *(group for groups in series.values() for group in groups)]


def rolled_part(parts: Sequence[Part], schema: TableSchema, key: str, data: bytes) -> Part:
    """Describe the roll-up of ``parts``, whose bytes are ``data``, for its block."""
    operations: Counter[str] = Counter()
    for part in parts:
        operations.update(part.operations)
    key_min, key_max = key_bounds(parts, [schema])
    return replace(
        parts[0],
        key=key,
        rows=sum(part.rows for part in parts),
        operations={name: operations[name] for name in sorted(operations)},
        bytes=len(data),
        digest=digest(data),
        last_seq=parts[-1].last_seq,
        key_min=key_min,
        key_max=key_max,
        **asdict(total(parts)),
    )
