"""Which chunk is read next.

While a chunk is decoded and waits for its high mark to come through the log, the next one is read
ahead. It may begin behind the keys of a chunk that is not emitted yet, and is worth nothing if that
one must be read again: `stale` says so when its turn has come. High marks come in the order of the
chunks; the next one's low mark may come before them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capture.core.events import Chunk, ChunkOrder, ChunkRead
from capture.core.visibility import UnseenTransactions
from capture.core.window import Window
from tideline.contract.manifest import OpenRequest, TableDump

if TYPE_CHECKING:
    from capture.core.worker import Worker


@dataclass(slots=True)
class Reading:
    """A chunk on its way: ordered; read; decoded; its window open from L on; judged at H.

    ``covered``: the tables newly in the publication that its fence, if it has one, serves.
    ``before``: the heartbeat that was written after its marks, once they are ``written``.
    """

    order: ChunkOrder
    covered: frozenset[str]
    window: Window | None = None
    read: ChunkRead | None = None
    chunk: Chunk | None = None
    waiting: str | None = None
    written: bool = False
    before: str | None = None

    def is_of(self, item: OpenRequest, dump: TableDump) -> bool:
        return (self.order.request_id, self.order.table) == (item.request.request_id, dump.table)


class Orders:
    """The chunk under way (``current``), the one read ahead of its high mark (``ahead``), and the
    choice of the next."""

    def __init__(self, core: Worker, unseen: UnseenTransactions, token: Callable[[], str]) -> None:
        self.current: Reading | None = None
        self.ahead: Reading | None = None
        self._core = core
        self._unseen = unseen
        self._token = token
        self._fresh: set[str] = set()
        self._redos = 0
        self._not_before = 0.0
        self._held: dict[str, float] = {}

    def next(self, *, now: float) -> ChunkOrder | None:
        """The next chunk to read, at ``now`` (monotonic seconds)."""
        if self.ahead is not None or now < self._not_before:
            return None
        held = {table for table, until in self._held.items() if now < until}
        if self.current is not None:
            self.ahead = reading = self._read_ahead(self.current, held)
        else:
            found = self._core.requests.next(held)
            self.current = reading = None if found is None else self._make(*found)
        return None if reading is None else reading.order

    @property
    def readings(self) -> list[Reading]:
        """The one under way and the one read ahead, if there are."""
        return [one for one in (self.current, self.ahead) if one is not None]

    def find(self, token: str) -> Reading | None:
        return next((one for one in self.readings if one.order.token == token), None)

    def end(self, reading: Reading) -> None:
        """``reading`` is over; what was read ahead takes its place."""
        if reading is self.current:
            self.current = self.ahead
        self.ahead = None

    def pause(self, until: float) -> None:
        self._not_before = until

    def hold(self, table: str, until: float) -> None:
        """Read nothing of ``table`` before ``until``."""
        self._held[table] = until

    def release(self, table: str) -> None:
        self._held.pop(table, None)

    def redo(self) -> None:
        """A chunk must be read again; after some of these it is read behind a fence."""
        self._redos += 1

    def emitted(self) -> None:
        self._redos = 0

    def joined(self, table: str) -> None:
        """``table`` joined the publication: transactions older than that are never streamed, so
        its first chunk waits until they have ended. One fence serves all that joined before it."""
        self._fresh.add(table)

    def fenced(self, reading: Reading) -> None:
        """The fence of ``reading`` has been passed."""
        self._fresh -= reading.covered

    def unfenced(self, table: str) -> bool:
        """Whether ``table`` still needs a fence."""
        return table in self._fresh

    def delay_s(self, request_id: str) -> float:
        """The pause that its asker wants between two chunks."""
        for item in self._core.requests.open:
            if item.request.request_id == request_id and item.request.delay_ms is not None:
                return item.request.delay_ms / 1000
        return self._core.limits.delay_ms / 1000

    def _read_ahead(self, before: Reading, held: set[str]) -> Reading | None:
        """What to read while ``before`` waits for its high mark: nothing behind a fence, which
        decides whether the next chunk needs one, nor where a pause is wanted."""
        if before.read is None or before.order.fence or self.delay_s(before.order.request_id):
            return None
        found = self._core.requests.next(held)
        if found is not None and before.is_of(*found):
            if stale(before.order, found[1]):
                return self._make(*found)
            if before.order.keys is None and not before.read.complete:
                return self._make(*found, after_key=before.read.last_key)
            found = self._core.requests.next({*held, before.order.table})
        return None if found is None else self._make(*found)

    def _make(
        self, item: OpenRequest, dump: TableDump, *, after_key: tuple[str, ...] | None = None
    ) -> Reading:
        request, limits = item.request, self._core.limits
        rows_max = request.chunk_rows or limits.chunk_rows
        keys = None
        if request.keys is not None:
            done = int(dump.last_key[0]) if dump.last_key else 0
            keys = request.keys[done : done + rows_max]
        fence = (
            not self._unseen.complete
            or dump.table in self._fresh
            or self._redos >= limits.chunk_redo_max
        )
        order = ChunkOrder(
            self._token(),
            request.request_id,
            dump.table,
            rows_max,
            limits.chunk_bytes_max,
            after_key=(after_key or dump.last_key) if keys is None else None,
            keys=keys,
            time=request.time,
            fence=fence,
            estimate=dump.rows_estimate is None and request.whole,
        )
        return Reading(order, frozenset(self._fresh) if fence else frozenset())


def stale(order: ChunkOrder, dump: TableDump) -> bool:
    """Whether the chunk does not follow what was emitted: the one before it is to be read again,
    or the dump began anew."""
    return order.keys is None and order.after_key != dump.last_key
