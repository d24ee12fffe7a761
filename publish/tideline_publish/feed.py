"""Follows the chain from a position, and yields the events behind it in batches."""

from __future__ import annotations

from collections.abc import Iterator

from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Manifest, Truncate, check_entry
from tideline.contract.publishing import ChainPosition
from tideline.contract.schema import TableSchema
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore
from tideline_publish.encoding import Encoder
from tideline_publish.events import TRUNCATED, ChangeEvent, EventBatch
from tideline_publish.formats.base import EventFormat
from tideline_publish.outbox.encoding import Outbox
from tideline_publish.part_rows import rows_in_order
from tideline_publish.selection import Selection


class ChainFeed:
    """The events of one publisher behind ``position``, which moves with what was yielded."""

    def __init__(
        self,
        store: ObjectStore,
        chain: Chain,
        event_format: EventFormat,
        selection: Selection,
        position: ChainPosition,
        outbox: Outbox,
    ) -> None:
        self._outbox = outbox
        self._store = store
        self._chain = chain
        self._format = event_format
        self._selection = selection
        self._encoder = Encoder(event_format, selection, chain.read_schema, outbox)
        self._last: ManifestEntry | None = None
        self.position = position
        self.state_manifest: int | None = None

    def batches(self) -> Iterator[EventBatch]:
        """Yield what is behind the position now, to the chain's end as it is then. Raises like the
        chain; CorruptData for parts that are missing or damaged."""
        number = self.position.manifest_number
        if self._last is None and number > 0:
            self._last = self._at_position(number)
        entry = self._chain.read(number + 1)
        if entry is None:
            return
        tail = self._chain.newest_number(number + 1)
        if tail == number + 1:
            yield from self._entry(entry)
            return
        for one in self._chain.entries(number + 1, tail):
            yield from self._entry(one)

    def checkpoint(self, position: ChainPosition) -> Iterator[None]:
        """Do nothing: all that it needs is its position."""
        yield from ()

    def close(self) -> None:
        """Do nothing: nothing is local."""

    def _at_position(self, number: int) -> ManifestEntry:
        entry = self._chain.read(number)
        known = None if entry is None else entry.manifest.incarnation
        if entry is None or known != self.position.incarnation:
            raise CorruptData(
                f"the chain is not the one of the position: manifest {number} of incarnation"
                f" {self.position.incarnation}",
                hint="the pipeline was started again, or its store restored: have the publisher"
                " begin again (docs/PUBLISHING.md#where-it-begins)",
            )
        return entry

    def _entry(self, entry: ManifestEntry) -> Iterator[EventBatch]:
        if self._last is not None:
            check_entry(self._last.manifest, self._last.raw, entry.manifest)
        after = self.position.seq
        manifest = entry.manifest
        for seq, events in self._windows(entry):
            resumed = bool(events) and events[0].seq <= after
            behind = [event for event in events if event.seq > after] if resumed else events
            self.position = self._position(manifest.manifest_number - 1, seq, manifest)
            yield EventBatch(behind, self.position, whole=False)
        self.position = self._position(manifest.manifest_number, manifest.last_seq, manifest)
        self._last = entry
        yield EventBatch((), self.position, whole=True)

    def _position(self, number: int, seq: int, manifest: Manifest) -> ChainPosition:
        return ChainPosition(manifest.incarnation, number, seq, self.position.epoch)

    def _windows(self, entry: ManifestEntry) -> Iterator[tuple[int, list[ChangeEvent]]]:
        manifest, after = entry.manifest, self.position.seq
        parts = [part for part in manifest.parts if self._has(part.table)]
        messages = [part for part in manifest.logged_messages if self._outbox.has_messages(part)]
        left = self._truncates(entry)
        for end, window in rows_in_order(parts, self._store.get, messages):
            # What was published is not judged again: an operator may have gone behind a bad row.
            events = self._encoder.events(manifest, [one.behind(after) for one in window])
            within = [one for one in left if one.seq <= end]
            if within:
                events = sorted([*events, *within], key=lambda one: (one.seq, one.part))
                left = left[len(within) :]
            yield end, events
        if left:
            yield left[-1].seq, left

    def _has(self, table: str) -> bool:
        return self._outbox.has(table) or self._selection.has(table)

    def _truncates(self, entry: ManifestEntry) -> list[ChangeEvent]:
        for one in entry.manifest.truncates:
            if self._outbox.has(one.table) and one.seq > self.position.seq:
                self._outbox.truncated(one.table, one.seq)
        if TRUNCATED not in self._selection.operations:
            return []
        chosen = [
            one
            for one in entry.manifest.truncates
            if self._selection.has(one.table) and not self._outbox.has(one.table)
        ]
        return [self._truncate(entry, one) for one in sorted(chosen, key=lambda one: one.seq)]

    def _truncate(self, entry: ManifestEntry, truncate: Truncate) -> ChangeEvent:
        state = self._chain.open_state(entry).tables.get(truncate.table)
        schema = TableSchema(truncate.table, (), ())
        if state is not None and state.schema is not None:
            schema = self._chain.read_schema(state.schema)
        value = self._format.truncate(entry.manifest, schema, truncate)
        ts_us = entry.manifest.through_us or 0
        return ChangeEvent(truncate.seq, 0, truncate.table, TRUNCATED, 0, ts_us, None, value)
