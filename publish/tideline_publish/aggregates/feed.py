"""Follows the chain from a position, and yields the documents behind it in batches."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import structlog
from msgspec.structs import replace

from tideline.contract.aggregates import Aggregate
from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.manifest import check_entry
from tideline.contract.publishing import ChainPosition
from tideline.programs.points import OnPoint, pass_by
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore
from tideline.system import System
from tideline_publish.aggregates.checkpoints import Checkpoints
from tideline_publish.aggregates.encoding import DocumentEncoder, change_event
from tideline_publish.aggregates.rows import changes_in_order
from tideline_publish.aggregates.tracker import (
    AggregateTracker,
    Change,
    DocumentEvent,
    read_once,
)
from tideline_publish.events import ChangeEvent, EventBatch
from tideline_publish.part_rows import rows_in_order

BATCH_EVENTS = 500
CHECKPOINT_CHANGES = 100_000
"""A checkpoint is due after so many changes of rows, or as many as there are rows."""

log = structlog.get_logger("tideline.publisher")


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """The documents to make of the chain: of ``aggregates``, by ``encode``, if their operation is
    one of ``operations``. ``checkpoint_s``: a checkpoint is written after so long, where
    something changed."""

    aggregates: Sequence[Aggregate]
    encode: DocumentEncoder
    operations: frozenset[str]
    checkpoint_s: float


class AggregateFeed:
    """The documents of one publisher behind ``position``, which moves with what was yielded.

    ``state_manifest``: the manifest of the newest checkpoint up to the position, 0 without any.
    """

    def __init__(
        self,
        store: ObjectStore,
        chain: Chain,
        options: DocumentOptions,
        checkpoints: Checkpoints,
        position: ChainPosition,
        system: System,
        on_point: OnPoint = pass_by,
    ) -> None:
        self._store = store
        self._chain = chain
        self._options = options
        self._checkpoints = checkpoints
        self._system = system
        self._on_point = on_point
        self._read_schema = read_once(chain.read_schema)
        self._tracker: AggregateTracker | None = None
        self._last: ManifestEntry | None = None
        self._kept_changes = 0
        self._kept_at = system.monotonic()
        self._lacking: str | None = None
        self.position = position
        self.state_manifest: int | None = 0

    def close(self) -> None:
        """Let go of the local file."""
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None

    def batches(self) -> Iterator[EventBatch]:
        """Yield what is behind the position now, to the chain's end as it is then; batches without
        events while the state is made. Raises like the chain; CorruptData for parts that are
        missing or damaged, Misconfigured for a definition that does not fit the tables."""
        if self._tracker is None:
            yield from self._restored()
        tracker = self._tracker
        assert tracker is not None
        number = self.position.manifest_number
        tail = self._chain.newest_number(number)
        for entry in self._chain.entries(number + 1, tail) if tail > number else ():
            yield from self._entry(tracker, entry)
        self._report(tracker)

    def checkpoint(self, position: ChainPosition) -> Iterator[None]:
        """Write a checkpoint, in steps, if one is due and the state is that of ``position``, which
        is settled."""
        tracker, entry = self._tracker, self._last
        if tracker is None or entry is None or position != self.position:
            return
        number = entry.manifest.manifest_number
        if position.manifest_number != number or not self._is_due(tracker):
            return
        for _ in self._checkpoints.write(tracker, entry, self._system.new_id()[:12]):
            self._on_point("after-state-object")
            yield
        self._kept(tracker, number)
        self._on_point("after-state")

    def _is_due(self, tracker: AggregateTracker) -> bool:
        changes = tracker.state.changes - self._kept_changes
        if not changes:
            return False
        if self._system.monotonic() - self._kept_at >= self._options.checkpoint_s:
            return True
        return changes >= CHECKPOINT_CHANGES and changes >= tracker.state.row_count()

    def _kept(self, tracker: AggregateTracker, number: int) -> None:
        self.state_manifest = number
        self._kept_changes, self._kept_at = tracker.state.changes, self._system.monotonic()

    def _restored(self) -> Iterator[EventBatch]:
        """Make the state that is behind the position."""
        nothing = EventBatch((), self.position, whole=False)
        through, incarnation = self.position.manifest_number, self.position.incarnation
        if through:
            self._check_chain(through)
        tracker, first = AggregateTracker(self._options.aggregates, self._read_schema), 1
        self._tracker = tracker
        for index in self._checkpoints.usable(self._chain, through, incarnation):
            try:
                for _ in self._checkpoints.load(index, tracker):
                    yield nothing
            except CorruptData as error:
                log.warning("a checkpoint of the state is not whole", reason=error.message)
                tracker.begin_behind(0)
                continue
            first = index.manifest_number + 1
            tracker.emitted_seq = index.emitted_seq
            tracker.complete.base_seq = index.base_seq
            tracker.complete.dumped.update(index.dumped)
            tracker.generations.update(index.generations)
            for name, fingerprint in index.schemas.items():
                tracker.schemas[name] = self._read_schema(fingerprint)
            self._last = self._chain.read(index.manifest_number)
            assert self._last is not None
            tracker.begin_at(self._chain.open_state(self._last).tables)
            self._kept(tracker, index.manifest_number)
            break
        for entry in self._chain.entries(first, through) if through >= first else ():
            for _ in self._replayed(tracker, entry):
                yield nothing
            yield nothing

    def _check_chain(self, number: int) -> None:
        entry = self._chain.read(number)
        if entry is None or entry.manifest.incarnation != self.position.incarnation:
            raise CorruptData(
                f"the chain is not the one of the position: manifest {number} of incarnation"
                f" {self.position.incarnation}",
                hint="the pipeline was started again, or its store restored: have the publisher"
                " begin again (docs/PUBLISHING.md#where-it-begins)",
            )

    def _replayed(self, tracker: AggregateTracker, entry: ManifestEntry) -> Iterator[DocumentEvent]:
        """Apply a manifest whose documents were published, or are left out. Without its parts, the
        state begins behind it."""
        try:
            yield from self._applied(tracker, entry)
        except _PartGone as error:
            log.warning(
                "parts are gone that documents are made from: none is published until the tables"
                " were dumped again (tideline dump)",
                part=error.key,
            )
            tracker.begin_behind(entry.manifest.last_seq)
            state = entry.manifest.state
            shapes = (one for one in entry.manifest.schema_events if tracker.has(one.table))
            yield from tracker.apply(entry.manifest, state, iter(sorted(shapes, key=_seq)))
        self._last = entry

    def _entry(self, tracker: AggregateTracker, entry: ManifestEntry) -> Iterator[EventBatch]:
        if self._last is not None:
            check_entry(self._last.manifest, self._last.raw, entry.manifest)
        manifest, after = entry.manifest, self.position.seq
        held: list[ChangeEvent] = []
        try:
            for document in self._applied(tracker, entry):
                if document.seq <= after or document.op not in self._options.operations:
                    continue
                if len(held) >= BATCH_EVENTS:
                    if held[-1].seq < document.seq:
                        self.position = replace(
                            self.position,
                            incarnation=manifest.incarnation,
                            seq=max(after, held[-1].seq),
                        )
                    yield EventBatch(held, self.position, whole=False)
                    held = []
                held.append(self._event(manifest.incarnation, document))
        except _PartGone as error:
            raise CorruptData(
                f"{error.key} is missing: its changes cannot be published",
                hint="restore it; or, where retention removed it, have the publisher begin behind"
                " it (docs/PUBLISHING.md#where-it-begins)",
            ) from None
        seq = max(after, tracker.emitted_seq)
        self.position = ChainPosition(
            manifest.incarnation, manifest.manifest_number, seq, self.position.epoch
        )
        self._last = entry
        yield EventBatch(held, self.position, whole=True)

    def _event(self, incarnation: str, document: DocumentEvent) -> ChangeEvent:
        table = self._options.aggregates[document.aggregate].table
        value = self._options.encode(incarnation, table, document)
        return change_event(table, document, value)

    def _applied(self, tracker: AggregateTracker, entry: ManifestEntry) -> Iterator[DocumentEvent]:
        manifest = entry.manifest
        state = manifest.state
        if state is None and not tracker.tables:
            state = self._chain.open_state(entry)
        return tracker.apply(manifest, state, self._changes(tracker, entry))

    def _changes(self, tracker: AggregateTracker, entry: ManifestEntry) -> Iterator[Change]:
        """Yield the changes of the members in a manifest, in order."""
        manifest = entry.manifest
        events: list[Change] = [*manifest.schema_events, *manifest.truncates]
        events = sorted((one for one in events if tracker.has(one.table)), key=_seq)
        return heapq.merge(self._rows(tracker, entry), events, key=_seq)

    def _rows(self, tracker: AggregateTracker, entry: ManifestEntry) -> Iterator[Change]:
        parts = [part for part in entry.manifest.parts if tracker.has(part.table)]
        for _, window in rows_in_order(parts, self._part):
            yield from changes_in_order(window, self._read_schema)

    def _part(self, key: str) -> bytes:
        raw = self._store.get(key)
        if raw is None:
            raise _PartGone(key)
        return raw

    def _report(self, tracker: AggregateTracker) -> None:
        """Log why documents are withheld. Raises Misconfigured where only another definition
        helps."""
        if tracker.problem is not None and tracker.problem == tracker.lacking:
            raise Misconfigured(
                f"no documents can be made: {tracker.problem}",
                hint="correct the section in the settings (docs/AGGREGATES.md)",
            )
        if tracker.lacking != self._lacking:
            self._lacking = tracker.lacking
            reason = tracker.lacking or "nothing is missing any more"
            log.info("documents are withheld while rows are missing", reason=reason)


class _PartGone(Exception):
    """A part is not in the store."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


_seq: Callable[[Change], int] = attrgetter("seq")
