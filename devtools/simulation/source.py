"""The simulated database as the worker's `Source`: preflight, log, chunks and catalog.

Statements take a little time each, so that anything may happen in between. Their order is that of
the real sources: it is what makes a chunk correct.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from devtools.simulation.connection import Connection, SourceSide
from devtools.simulation.log import DatabaseKind, SimulatedWatermark
from devtools.simulation.rows import make_chunk, make_keys
from devtools.simulation.tables import Form, Key, Row, collated
from devtools.simulation.wire import SimulatedReader, index_of, position_at
from tideline.contract.errors import Misconfigured, SourceLost, Unavailable
from tideline.contract.manifest import Manifest
from tideline.contract.position import (
    MysqlPosition,
    PostgresPosition,
    SourceIdentity,
    SourcePosition,
)
from tideline_capture.core.chunks import Chunk, ChunkFailed, ChunkOrder, ChunkRead
from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.facts import CatalogRound, Snapshot, SourceLoad
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.finding import Finding
from tideline_capture.sources.watermark_key import WatermarkKey

_MAKING = PostgresPosition(1)
"""The chain records that a slot is about to be made."""
_FENCE_S = 20.0


class SimulatedSource(SourceSide):
    """A simulated `Source`."""

    def connect(self) -> Connection:
        self.world.sleep(self.trouble.pause_s())
        if not self.database.up:
            raise Unavailable("the source cannot be reached")
        return Connection(self.database, self.database.resets)

    def check(self, chain_end: Callable[[], ChainTail]) -> list[Finding]:
        """See `Preflight.check`."""
        return []

    def check_url(self) -> list[Finding]:
        """See `Preflight.check_url`."""
        return []

    def identity(self) -> SourceIdentity:
        self.connect()
        return self.database_identity

    @property
    def database_identity(self) -> SourceIdentity:
        moved = self.database.lost == "failover"
        return SourceIdentity(self.database.kind.value, "2" if moved else "1", 1, "sim")

    def begin(self) -> SourcePosition:
        if self.database.kind is DatabaseKind.POSTGRES:
            return PostgresPosition(0)
        return MysqlPosition("", 0)

    def resume(self, tail: Manifest, on_waiting: Callable[[str], None]) -> SourcePosition:
        """See `Preflight.resume`."""
        connection, database = self.connect(), self.database
        if tail.identity != self.database_identity:
            raise SourceLost("this is another server")
        if not database.order_commits and "order-off-accepted" not in self.flaws:
            raise Misconfigured(
                "binlog_order_commits is OFF", hint="SET GLOBAL binlog_order_commits = ON"
            )
        if database.kind is DatabaseKind.POSTGRES and tail.position == self.begin():
            return _MAKING
        if tail.position in (self.begin(), _MAKING):
            self.world.sleep(self.trouble.pause_s())
            connection.check()
            database.slot = database.began_at = database.end
            return position_at(database.kind, database.end)
        at = index_of(tail.position)
        if database.lost is not None:
            raise SourceLost(f"the log is gone from {tail.position} on: {database.lost}")
        if database.kind is DatabaseKind.POSTGRES and (database.slot or 0) > at:
            raise SourceLost(f"the slot was confirmed past {tail.position}")
        return tail.position

    def log_reader(
        self,
        position: SourcePosition,
        key: WatermarkKey,
        captures: Callable[[str], bool],
        prepared: Mapping[str, SourcePosition],
    ) -> SimulatedReader:
        """See `Source.log_reader`. The caller takes the slot from its holder."""
        if self._first is None:
            self._first = position
        if "resumes-from-first" in self.flaws:
            position = self._first
        if self.process not in self.database.readers:
            self.database.readers.append(self.process)
        return SimulatedReader(self, self.connect(), key, position, captures, prepared)

    def chunk_reader(self, key: WatermarkKey) -> SimulatedChunkReader:
        return SimulatedChunkReader(self, key)

    def watch(self, key: WatermarkKey) -> SimulatedWatch:
        return SimulatedWatch(self, key)

    def keep_copies(self, tokens: Collection[str]) -> None:
        """Do nothing: no table is copied in a snapshot that would be ended."""

    def write_watermark(
        self, connection: Connection, key: WatermarkKey, kind: WatermarkKind, token: str
    ) -> None:
        """Write a watermark and wait until it is committed."""
        connection.check()
        watermark = SimulatedWatermark(kind, token, self.database.clock_us, key)
        reported = self.database.write_watermark(watermark, takes_s=self.trouble.pause_s())
        self.world.wait(reported, None)
        connection.check()

    def snapshot(self) -> Snapshot:
        if self.database.kind is DatabaseKind.MYSQL:
            return Snapshot(0, 0, ())
        return self.database.snapshot()


class SimulatedChunkReader:
    """A `ChunkReader` on two connections."""

    def __init__(self, source: SimulatedSource, key: WatermarkKey) -> None:
        self._source = source
        self._key = key
        self._connection = source.connect()

    def fetch(
        self, order: ChunkOrder, on_waiting: Callable[[str | None], None]
    ) -> SimulatedFetch | ChunkFailed:
        """See `SimulatedChunkReader.fetch`."""
        source, world = self._source, self._source.world
        if "marks-by-polling" in source.flaws:
            watermark = SimulatedWatermark(
                WatermarkKind.LOW, order.token, source.database.clock_us, self._key
            )
            source.database.polled_watermark(watermark)
        else:
            source.write_watermark(self._connection, self._key, WatermarkKind.LOW, order.token)
        source.trouble.on_point("after-low")
        failed = self._fence(order, on_waiting)
        if failed is not None:
            return failed
        source.trouble.on_point("after-fence")
        world.sleep(source.trouble.pause_s())
        failed = self._settle(order, on_waiting)
        if failed is not None:
            return failed
        fetched = self._read(order)
        source.database.chunk_of = order.table
        world.give(source.database.chunk_read)
        source.trouble.on_point("mid-select")
        world.sleep(source.trouble.pause_s())
        self._connection.check()
        source.trouble.on_point("after-select")
        return fetched

    def write_high(self, order: ChunkOrder) -> None:
        self._source.write_watermark(self._connection, self._key, WatermarkKind.HIGH, order.token)
        self._source.trouble.on_point("after-high")

    def close(self) -> None:
        self._connection.open = False

    def _fence(
        self, order: ChunkOrder, on_waiting: Callable[[str | None], None]
    ) -> ChunkFailed | None:
        """Wait until every transaction has ended that may be in the log before the low
        watermark."""
        source, database = self._source, self._source.database
        if not order.fence or database.kind is DatabaseKind.MYSQL or "no-fence" in source.flaws:
            return None
        listed = set(database.snapshot().running)
        fresh, end = database.fresh_xid(), source.world.now + _FENCE_S
        while True:
            self._connection.check()
            now = database.snapshot()
            old = now.xmin >= fresh
            if "fence-of-the-listed" in source.flaws:
                old = not listed & set(now.running)
            if old:
                on_waiting(None)
                return None
            if source.world.now > end:
                return ChunkFailed(order.token, "an old transaction is open", None, retry=True)
            on_waiting("transactions that are older than the low watermark")
            source.world.wait(database.visible, 1.0)

    def _settle(
        self, order: ChunkOrder, on_waiting: Callable[[str | None], None]
    ) -> ChunkFailed | None:
        """Wait for locks of the whole table, and for XA transactions that are being committed."""
        source, database = self._source, self._source.database
        end = source.world.now + 3.0
        while database.tables[order.table].exclusive or database.committing_xa:
            if source.world.now > end:
                return ChunkFailed(order.token, "the table is locked", None, retry=True)
            on_waiting("another session holds a lock on the table")
            source.world.wait(database.visible, 0.5)
            self._connection.check()
        if not database.order_commits and "order-off-accepted" not in source.flaws:
            raise Misconfigured("binlog_order_commits is OFF")
        return None

    def _read(self, order: ChunkOrder) -> SimulatedFetch:
        """Read the rows as one snapshot sees them; all comparisons of keys are the database's."""
        source = self._source
        table = source.database.tables[order.table]
        snapshot = source.snapshot()
        if order.keys is not None:
            keys = [_parsed(table.form, key) for key in order.keys[: order.rows_max]]
            found = [key for key in keys if key in table.rows]
            missing = [key for key in dict.fromkeys(keys) if key not in table.rows]
            rows = [table.rows[key] for key in dict.fromkeys(found)]
            return SimulatedFetch(
                order, table.form, snapshot, rows, missing, complete=True, read_keys=len(keys)
            )
        compared = _by_character if "keys-compared-here" in source.flaws else collated
        keys = [key for key in table.ordered() if _within(order, table.form, key, compared)]
        rows = [table.rows[key] for key in keys[: order.rows_max]]
        complete = len(keys) < order.rows_max
        return SimulatedFetch(order, table.form, snapshot, rows, None, complete=complete)


@dataclass(frozen=True, slots=True)
class SimulatedFetch:
    """A simulated `FetchedChunk`."""

    order: ChunkOrder
    form: Form
    snapshot: Snapshot
    rows: list[Row]
    missing: list[Key] | None
    complete: bool
    read_keys: int = 0

    @property
    def last_key(self) -> tuple[str, ...] | None:
        name = self.form.schema.key[0]
        return (str(self.rows[-1][name]),) if self.rows else None

    @property
    def read(self) -> ChunkRead:
        return ChunkRead(self.order.token, self.last_key, self.complete, len(self.rows))

    def decode(self) -> Chunk:
        schema = self.form.schema
        return Chunk(
            token=self.order.token,
            facts=self.form.facts,
            batch=make_chunk(schema, self.rows),
            key_overflow=(),
            missing=None if self.missing is None else make_keys(schema, self.missing),
            last_key=self.last_key,
            complete=self.complete,
            snapshot=self.snapshot,
            rows_estimate=100 if self.order.estimate else None,
            keys_read=self.read_keys,
        )


class SimulatedWatch:
    """A `SourceWatch` on one connection."""

    def __init__(self, source: SimulatedSource, key: WatermarkKey) -> None:
        self._source = source
        self._key = key
        self._connection = source.connect()

    def round(self, register: Callable[[CatalogRound], None]) -> None:
        """See `SourceWatch.round`."""
        source, database = self._source, self._source.database
        token = f"{next(source.rounds):012d}.{source.world.random.getrandbits(64):016x}"
        source.write_watermark(self._connection, self._key, WatermarkKind.CATALOG_LOW, token)
        snapshot = source.snapshot()
        self._publish()
        facts = tuple(table.form.facts for table in database.tables.values())
        source.world.sleep(source.trouble.pause_s())
        register(CatalogRound(token, facts, snapshot))
        source.write_watermark(self._connection, self._key, WatermarkKind.HEARTBEAT, token)

    def snapshot(self) -> Snapshot:
        self._connection.check()
        return self._source.snapshot()

    def load(self, position: SourcePosition, source_time_us: int | None) -> SourceLoad:
        self._connection.check()
        return SourceLoad(0.0, 0, 0)

    def close(self) -> None:
        self._connection.open = False

    def _publish(self) -> None:
        """Put tables that are not in the publication into it."""
        database = self._source.database
        for table in database.tables.values():
            if not table.form.membership:
                database.memberships += 1
                table.form = replace(table.form, membership=str(database.memberships))


def _parsed(form: Form, texts: tuple[str, ...]) -> Key:
    kind = form.schema.column(form.schema.key[0]).type
    return (int(texts[0]),) if kind == "int64" else (texts[0],)


def _by_character(key: Key) -> tuple[object, ...]:
    return key


def _within(
    order: ChunkOrder, form: Form, key: Key, compared: Callable[[Key], tuple[object, ...]]
) -> bool:
    bounds = order.key_range
    if (
        bounds is not None
        and bounds.start
        and collated(key) < collated(_parsed(form, bounds.start))
    ):
        return False
    if bounds is not None and bounds.end and collated(key) >= collated(_parsed(form, bounds.end)):
        return False
    if order.after_key is None:
        return True
    return compared(key) > compared(_parsed(form, order.after_key))
