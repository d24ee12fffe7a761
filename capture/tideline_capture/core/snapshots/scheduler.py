"""Schedules chunks: decides which one is read next.

Several dumps run concurrently, and of each several chunks: while one is decoded and waits for its
high watermark to come through the log, the next ones are read ahead. A chunk that is read ahead
begins behind the keys of one that is not emitted yet, and is useless if that one must be read
again. So the chunks in flight of one dump form a *chain*, from the last key that was emitted on; a
chunk that is no longer in it is dropped when its turn comes.

Chunks of one dump are emitted in the order of its keys, in whatever order their high watermarks
come. A chunk whose high watermark has passed and whose turn has not come keeps its window open: a
window may end later than its high watermark, but never earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tideline.contract.open_state import OpenRequest, TableDump
from tideline_capture.core.chunks import Chunk, ChunkOrder, ChunkRead
from tideline_capture.core.events import Watermark
from tideline_capture.core.open_requests import OPEN, reads_keys
from tideline_capture.core.snapshots.governor import Governor
from tideline_capture.core.snapshots.verification import sampled
from tideline_capture.core.snapshots.window import ChunkWindow
from tideline_capture.core.state import CoreState
from tideline_capture.core.visibility import UnseenTransactions


@dataclass(slots=True)
class InFlightChunk:
    """A chunk in flight: ordered; read; decoded; its window open from L on.

    It is judged when H has passed and its turn has come. ``covered``: the tables newly in the
    publication that its fence, if it has one, serves. ``before``: the heartbeat that was written
    after its watermarks, once they are ``written``.
    """

    order: ChunkOrder
    covered: frozenset[str]
    window: ChunkWindow | None = None
    read: ChunkRead | None = None
    fetched: Chunk | None = None
    high: Watermark | None = None
    waiting: str | None = None
    written: bool = False
    before: str | None = None


class ChunkScheduler:
    """The chunks in flight (``in_flight``, oldest first), and the choice of the next."""

    def __init__(
        self, state: CoreState, unseen: UnseenTransactions, token: Callable[[], str]
    ) -> None:
        self.in_flight: list[InFlightChunk] = []
        self.governor = Governor(state.limits)
        self._state = state
        self._unseen = unseen
        self._token = token
        self._fresh: set[str] = set()
        self._redos = 0
        self._read_at: dict[str, float] = {}
        self._resting: dict[str, float] = {}

    def next(self, *, now: float) -> ChunkOrder | None:
        """Return the next chunk to read, at ``now`` (monotonic seconds).

        Nothing is ordered behind a fence, which decides whether the next chunk needs one. When the
        limit of concurrent dumps is reached, the one that is due next waits for its turn, and so
        does everything that ranks behind it: so a repair gets the next chunk. For the same reason
        nothing is read ahead of a table that a dump which ranks higher waits for.
        """
        if any(one.order.fence for one in self.in_flight):
            return None
        if self.governor.throttled_by(now=now) is not None:
            return None
        under_way = {(one.order.request_id, one.order.table) for one in self.in_flight}
        tables = {one.order.table for one in self.in_flight}
        awaited: set[str] = set()
        for item, dump in self._state.requests.due():
            if self._waits(item, dump, now):
                continue
            chunk = None
            if (item.request.request_id, dump.table) in under_way:
                if dump.table not in awaited:
                    chunk = self._read_ahead(item, dump)
            elif dump.table in tables:
                awaited.add(dump.table)
            else:
                if self._dumps_being_read() >= self._state.limits.parallel_dumps_max:
                    return None
                chunk = self._make(item, dump)
            if chunk is not None:
                self._state.take_turn(item)
                self.in_flight.append(chunk)
                return chunk.order
        return None

    @property
    def windows(self) -> list[ChunkWindow]:
        """The open windows."""
        return [one.window for one in self.in_flight if one.window is not None]

    @property
    def unmarked(self) -> frozenset[str]:
        """The chunks in flight whose low watermarks have not come."""
        return frozenset(one.order.token for one in self.in_flight if one.window is None)

    def find(self, token: str) -> InFlightChunk | None:
        return next((one for one in self.in_flight if one.order.token == token), None)

    def end(self, chunk: InFlightChunk) -> None:
        """Remove ``chunk``, which is over."""
        self.in_flight.remove(chunk)

    def ready(self) -> Iterator[InFlightChunk]:
        """Yield the chunks whose turn has come, or will never come; each is ended."""
        while (chunk := self._first_ready()) is not None:
            self.end(chunk)
            yield chunk

    def pause(self, request_id: str, now: float) -> None:
        """Note that a chunk of the request ended.

        The next one comes after the pause that its client wants, which a command may change in the
        meantime.
        """
        self._read_at[request_id] = now

    def rest(self, table: str, until: float) -> None:
        """Read nothing of ``table`` before ``until``."""
        self._resting[table] = until

    def release(self, table: str) -> None:
        self._resting.pop(table, None)

    def redo(self) -> None:
        """Note that a chunk must be read again; after some of these it is read behind a fence."""
        self._redos += 1

    def emitted(self) -> None:
        self._redos = 0

    def joined(self, table: str) -> None:
        """Note that ``table`` joined the publication.

        Transactions older than that are never streamed, so its first chunk waits until they have
        ended. One fence serves all that joined before it.
        """
        self._fresh.add(table)

    def fenced(self, chunk: InFlightChunk) -> None:
        """Note that the fence of ``chunk`` has been passed."""
        self._fresh -= chunk.covered

    def unfenced(self, table: str) -> bool:
        """Return whether ``table`` still needs a fence."""
        return table in self._fresh

    def delay_s(self, request_id: str) -> float:
        """Return the pause that its client wants between two chunks."""
        return self._state.requests.delay_s(request_id, self._state.limits.delay_ms)

    def _dumps_being_read(self) -> int:
        """Count the dumps with a chunk in flight, whose last one has not been read."""
        newest = {(one.order.request_id, one.order.table): one for one in self.in_flight}
        return sum(one.read is None or not one.read.complete for one in newest.values())

    def _waits(self, item: OpenRequest, dump: TableDump, now: float) -> bool:
        resting = self._resting.get(dump.table, now) > now or self._is_copied(item, dump)
        request_id = item.request.request_id
        read_at = self._read_at.get(request_id)
        return resting or (read_at is not None and read_at + self.delay_s(request_id) > now)

    def _is_copied(self, item: OpenRequest, dump: TableDump) -> bool:
        """Return whether another dump copies a table without a key.

        Only the place in the log distinguishes what copies hold, so one ends before the next one
        begins.
        """
        return (
            dump.first_low_seq is None
            and self._state.keyless(dump.table)
            and any(
                other.table == dump.table
                and other.state in OPEN
                and other.first_low_seq is not None
                and one.request.request_id != item.request.request_id
                for one in self._state.requests.open
                for other in one.dumps
            )
        )

    def _first_ready(self) -> InFlightChunk | None:
        for chunk in self.in_flight:
            if chunk.high is None:
                continue
            dump = self._state.requests.dump(chunk.order.request_id, chunk.order.table)
            chain = [] if dump is None else self._chain(chunk.order.request_id, dump)
            if chunk not in chain[1:]:
                return chunk
        return None

    def _chain(self, request_id: str, dump: TableDump) -> list[InFlightChunk]:
        """Return the chunks in flight of a dump, each behind the one before it."""
        rest = [
            one
            for one in self.in_flight
            if (one.order.request_id, one.order.table) == (request_id, dump.table)
        ]
        chain: list[InFlightChunk] = []
        behind = dump.last_key
        while True:
            follows = [
                one
                for one in rest
                if not stale(one.order, dump, behind) and not outlived(one, dump)
            ]
            if not follows:
                return chain
            chain.append(follows[0])
            rest.remove(follows[0])
            read = follows[0].read
            if read is None or read.complete or follows[0].order.keys is not None:
                return chain
            behind = read.last_key

    def _read_ahead(self, item: OpenRequest, dump: TableDump) -> InFlightChunk | None:
        """Return a new chunk behind those in flight, if one may be read ahead.

        None where a pause is wanted, or a list of keys is read: how far such a chunk comes is not
        known before.
        """
        chain = self._chain(item.request.request_id, dump)
        if not chain:
            return self._make(item, dump)  # What is in flight began elsewhere, and is dropped.
        last = chain[-1]
        ends = last.read is None or last.read.complete or last.order.keys is not None
        if (
            ends
            or self.delay_s(item.request.request_id)
            or len(chain) > self._state.limits.chunks_ahead_max
        ):
            return None
        return self._make(item, dump, after_key=last.read.last_key if last.read else None)

    def _make(
        self, item: OpenRequest, dump: TableDump, *, after_key: tuple[str, ...] | None = None
    ) -> InFlightChunk:
        request, limits = item.request, self._state.limits
        rows_max = self._state.requests.rows_max(item, limits.chunk_rows)
        rows_max = self.governor.rows_max(dump.table, rows_max)
        keys = None
        if reads_keys(request, dump):
            done = int(dump.last_key[0]) if dump.last_key else 0
            keys = (request.keys or ())[done : done + rows_max]
        fence = (
            not self._unseen.complete
            or dump.table in self._fresh
            or self._redos >= limits.chunk_redo_max
        )
        keyless = self._state.keyless(dump.table)
        behind = (after_key or dump.last_key) if keys is None else None
        # From a snapshot whose place is known nothing can be missing.
        fence = fence and not (keyless and behind is not None)
        order = ChunkOrder(
            self._token(),
            request.request_id,
            dump.table,
            rows_max,
            limits.chunk_bytes_max,
            after_key=behind,
            keys=keys,
            time=request.time if keys is None else None,
            key_range=request.key_range if keys is None else None,
            fence=fence,
            estimate=dump.rows_estimate is None and request.unbounded,
            verify=request.verifies,
            keyless=keyless,
            boundary_only=keys is None and not sampled(request, dump.table, behind),
        )
        return InFlightChunk(order, frozenset(self._fresh) if fence else frozenset())


def stale(order: ChunkOrder, dump: TableDump, behind: tuple[str, ...] | None = None) -> bool:
    """Return whether the chunk does not follow what was emitted (or the key ``behind``).

    Then the one before it is to be read again, or the dump was restarted.
    """
    if order.keys is not None:
        return False
    return dump.phase == "keys" or order.after_key != (behind or dump.last_key)


def outlived(chunk: InFlightChunk, dump: TableDump) -> bool:
    """Return whether the chunk's window was opened before the dump (re)started.

    Though it may follow what was emitted again, events of its window that its rows left to the log
    lie below the delete-before sequence.
    """
    window, order = chunk.window, chunk.order
    parts = order.keyless or order.verify or order.keys or order.time or order.key_range
    if window is None or dump.first_low_seq is None or parts:
        return False  # The others delete nothing; a copy's is found otherwise (`copies`).
    return window.low_seq < dump.first_low_seq
