"""The uploader: parts first, then the manifest that commits them, one manifest after the other.

It runs in a separate thread, behind a queue that is bounded in bytes, and is the only one that
extends the chain while this worker is active. It waits for an unavailable store, however long: the
log reader stops when the queue is full, and the source keeps its log. When nothing was committed
for a heartbeat, an empty manifest says that the writer lives, also while a huge transaction uploads
its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog
from msgspec.structs import replace

from tideline.contract import layout
from tideline.contract.description import Description
from tideline.contract.errors import TidelineError, Unavailable
from tideline.contract.manifest import (
    Manifest,
    Part,
    VerificationChunk,
    digest,
)
from tideline.contract.open_state import OpenState
from tideline.contract.part import DUMPED
from tideline.contract.schema import TableId, TableSchema, parse_table
from tideline.programs.points import OnPoint, pass_by
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore
from tideline.system import Empty, Queue, System
from tideline_capture.core.events import Rows
from tideline_capture.core.segment import PartialFlush, Segment, VerificationRows
from tideline_capture.health import Health
from tideline_capture.leadership import Lead
from tideline_capture.manifests import Manifests
from tideline_capture.segments import encode_parts, encode_verification_part

_PUTS_AT_ONCE = 8
_RETRY_S = 1.0

Result = TypeVar("Result")

log = structlog.get_logger("tideline.uploader")


@dataclass(frozen=True, slots=True)
class Restart:
    """A message that the log is read again from what is durable.

    Forget the parts of an unfinished transaction, and prove with a heartbeat that this worker still
    owns the chain.
    """


@dataclass(slots=True)
class _FlushedParts:
    """Parts that are uploaded and not yet named by a manifest."""

    parts: list[Part]
    prefixes: list[int]


class Uploader:
    """Makes what it is handed durable, in order, behind the chain's end ``lead``.

    ``on_durable(entry, segment)`` is called in this thread after each manifest; ``segment`` is None
    for the uploader's own heartbeats. ``failure`` holds the error that ended the thread, if not
    `stop`. ``health`` is notified of its turns, and of the main loop's while that waits for it.
    """

    def __init__(
        self,
        store: ObjectStore,
        chain: Chain,
        lead: Lead,
        system: System,
        *,
        heartbeat_s: float,
        on_point: OnPoint = pass_by,
        health: Health | None = None,
    ) -> None:
        self.failure: BaseException | None = None
        self.unavailable_since: float | None = None
        self.on_durable: Callable[[ManifestEntry, Segment | None], None] = lambda entry, segment: (
            None
        )
        self._store = store
        self._chain = chain
        self._manifests = Manifests(lead.entry, lead.state, system)
        self._heartbeat_s = heartbeat_s
        self._on_point = on_point
        self._health = health or Health(clock=system.monotonic)
        self._queue: Queue[Segment | PartialFlush | Restart] = system.queue()
        self._bytes = 0
        self._unfinished = 0
        self._changed = system.condition()
        self._stopping = system.event()
        self._pool = system.pool(_PUTS_AT_ONCE, name="put")
        self._flushed = _FlushedParts([], [])
        self._written_schemas: set[str] = set()
        self._system = system
        self._thread = system.thread(self._run, name="uploader")
        self._appended_at = self._owned_at = system.monotonic()

    # -- other threads -------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    @property
    def pending_bytes(self) -> int:
        """Bytes in memory that are not durable yet."""
        return self._bytes

    @property
    def idle(self) -> bool:
        return self._unfinished == 0

    @property
    def silent_s(self) -> float:
        """The seconds since our newest manifest was sent.

        Above ``takeover_after_s`` another worker may own the chain, however lately the store's
        answer came.
        """
        return self._system.monotonic() - self._owned_at

    def submit(self, item: Segment | PartialFlush | Restart) -> None:
        with self._changed:
            self._unfinished += 1
            self._bytes += _bytes_of(item)
        self._queue.put(item)

    @property
    def last(self) -> ManifestEntry:
        """The chain's tail."""
        return self._manifests.last

    @property
    def state(self) -> OpenState:
        """The open state after the last manifest, in full; to be read after `drain`."""
        return self._manifests.state

    def drain(self, timeout_s: float | None = None) -> None:
        """Return once all that was submitted is durable.

        Raises the error that ended the uploader, and Unavailable after ``timeout_s``.
        """
        end = None if timeout_s is None else self._system.monotonic() + timeout_s
        with self._changed:
            while self._unfinished and self.failure is None:
                self._health.main.turn()
                self._changed.wait(0.5)
                if end is not None and self._system.monotonic() > end:
                    raise Unavailable(
                        f"the store did not take all that was read within {timeout_s:g} s; the"
                        " rest is read again at the next start"
                    )
        self.check()

    def check(self) -> None:
        """Raise the error that ended the uploader, if it ended."""
        if self.failure is not None:
            raise self.failure

    def release(self, timeout_s: float | None = None) -> None:
        """Record in the chain that this writer stops, so that a successor need not wait.

        Raises like `drain`.
        """
        self.drain(timeout_s)
        self.stop()
        self._thread.join()
        self.check()
        self._on_point("before-release")
        self._append(self._heartbeat(released=True), None)
        self._on_point("after-release")

    def stop(self) -> None:
        self._stopping.set()

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except TidelineError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._pool.abandon()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.failure = error
            self._changed.notify_all()

    def _step(self) -> None:
        self._health.uploader.turn()
        try:
            item = self._queue.get(timeout=min(0.2, self._heartbeat_s / 4))
        except Empty:
            self._beat_if_due()
            return
        self._handle(item)
        with self._changed:
            self._unfinished -= 1
            self._bytes -= _bytes_of(item)
            self._changed.notify_all()

    def _until_available(self, action: Callable[[], Result]) -> Result:
        """Repeat ``action`` for as long as the store is unavailable.

        It must write the same bytes each time: one that failed may have had its effect.
        """
        while True:
            self._health.uploader.turn()
            try:
                done = action()
            except Unavailable as error:
                if self._stopping.is_set():
                    raise
                if self.unavailable_since is None:
                    self.unavailable_since = self._system.monotonic()
                log.warning(
                    "the store is unavailable; reading stops when the buffer is full",
                    reason=str(error),
                )
                self._stopping.wait(_RETRY_S)
            else:
                self.unavailable_since = None
                return done

    def _handle(self, item: Segment | PartialFlush | Restart) -> None:
        if isinstance(item, Restart):
            self._flushed = _FlushedParts([], [])
            self._append(self._heartbeat(), None)
        elif isinstance(item, PartialFlush):
            # One huge transaction can keep the queue filled for longer than a takeover takes.
            self._beat_if_due()
            self._write_schemas(item.schemas)
            self._flushed.parts += self._put_parts(item.rows)
        else:
            self._commit(item)

    def _commit(self, segment: Segment) -> None:
        self._write_schemas(segment.schemas)
        self._write_descriptions(segment.descriptions)
        uploaded = self._put_parts(segment.rows)
        parts = [*self._flushed.parts, *uploaded]
        chunks = self._put_verification_parts(segment.verification_rows)
        self._flushed = _FlushedParts([], [])
        self._on_point("between-parts-and-manifest")
        self._append(self._manifests.segment(segment, parts, chunks), segment)

    def _beat_if_due(self) -> None:
        if self._system.monotonic() - self._appended_at >= self._heartbeat_s:
            self._append(self._heartbeat(), None)

    def _heartbeat(self, *, released: bool = False) -> Manifest:
        return self._manifests.heartbeat(self._flushed.prefixes, released=released)

    def _append(self, manifest: Manifest, segment: Segment | None) -> None:
        def attempt() -> tuple[float, ManifestEntry]:
            return self._system.monotonic(), self._chain.append(manifest)

        sent_at, entry = self._until_available(attempt)
        self._on_point("after-manifest")
        self._manifests.appended(entry)
        self._appended_at, self._owned_at = self._system.monotonic(), sent_at
        self.on_durable(entry, segment)

    def _write_schemas(self, schemas: tuple[TableSchema, ...]) -> None:
        new = [one for one in schemas if one.fingerprint not in self._written_schemas]
        if new:
            writes = [partial(self._chain.write_schema, schema) for schema in new]
            self._until_available(lambda: self._do_all(writes))
            self._written_schemas.update(schema.fingerprint for schema in new)

    def _write_descriptions(self, descriptions: tuple[Description, ...]) -> None:
        if descriptions:
            writes = [partial(self._chain.write_description, one) for one in descriptions]
            self._until_available(lambda: self._do_all(writes))

    def _put_parts(self, rows: tuple[Rows, ...]) -> list[Part]:
        if not rows:
            return []
        if self._manifests.next_number not in self._flushed.prefixes:
            self._flushed.prefixes.append(self._manifests.next_number)
        self._on_point("before-encode")
        parts = encode_parts(rows, self._part_key)
        dumped = any(part.operations.get(DUMPED) for part, _ in parts)
        self._on_point("before-part-put")
        if dumped:
            self._on_point("before-chunk-put")
        puts = [partial(self._store.put, part.key, data) for part, data in parts]
        self._until_available(lambda: self._do_all(puts))
        if dumped:
            self._on_point("after-chunk-put")
        return [part for part, _ in parts]

    def _put_verification_parts(self, read: Sequence[VerificationRows]) -> list[VerificationChunk]:
        """Upload the verification chunks; return their entries for the manifest."""
        chunks, puts = [], []
        for one in read:
            chunk = one.chunk
            if chunk.rows:
                data = encode_verification_part(one)
                key = self._key(layout.verification_part_key, one.schema)
                chunk = replace(chunk, key=key, bytes=len(data), digest=digest(data))
                puts.append(partial(self._store.put, key, data))
            chunks.append(chunk)
        if puts:
            self._on_point("before-verification-put")
            self._until_available(lambda: self._do_all(puts))
            self._on_point("after-verification-put")
        return chunks

    def _do_all(self, requests: Sequence[Callable[[], object]]) -> None:
        """Do the actions; heartbeats continue in the meantime, however long it takes: the writer
        lives."""
        under_way = [self._pool.submit(request) for request in requests]
        try:
            while not self._pool.ended(under_way, timeout_s=self._heartbeat_s / 4):
                self._health.uploader.turn()
                self._beat_if_due()
            for one in under_way:
                one.result()
        finally:
            for one in under_way:
                one.cancel()

    def _part_key(self, schema: TableSchema) -> str:
        return self._key(layout.part_key, schema)

    def _key(self, made: Callable[[str, int, TableId, str, str], str], schema: TableSchema) -> str:
        return made(
            self.last.manifest.pipeline,
            self._manifests.next_number,
            parse_table(schema.table),
            schema.fingerprint,
            self._system.new_id()[:12],
        )


def _bytes_of(item: Segment | PartialFlush | Restart) -> int:
    if isinstance(item, Restart):
        return 0
    size: int = sum(rows.batch.nbytes for rows in item.rows)
    read = item.verification_rows if isinstance(item, Segment) else ()
    return size + sum(one.bytes for one in read)
