"""The replication stream, decoded in bulk: pgoutput, protocol 1, text.

A batch of messages is joined into one buffer and taken apart with numpy: transactions, relations
and sequences for thousands of rows at once; `decode` then does the same for the columns. Messages
other than begin, commit and rows end a batch, so that their meaning applies exactly from there on.

Two settings close a hole of psycopg2, which answers a keepalive inside a transaction by confirming
more than was ever confirmed to it. The sender's time-out is off, so that keepalives come between
transactions only. And the confirmed position is the byte *before* the durable commit, so that the
driver's own rule (confirmed ≥ start of the last message) never holds. So ``confirmed_flush_lsn``
never passes what the chain holds, and a slot that did was not ours.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg2

from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.position import PostgresPosition, SourcePosition, format_lsn
from tideline.contract.schema import TableSchema
from tideline_capture.core.events import (
    Boundary,
    Control,
    Int64Array,
    LogBatch,
    Rows,
    Truncated,
)
from tideline_capture.sources.decoding import EVENT_BYTES_MAX, decoding, too_large
from tideline_capture.sources.postgres.connect import querying, replication_failed
from tideline_capture.sources.postgres.replication.decode import decode_rows
from tideline_capture.sources.postgres.replication.messages import (
    OIDS_MAX,
    ApplicationMessages,
)
from tideline_capture.sources.postgres.replication.pgoutput import (
    POSTGRES_EPOCH_US,
    LogicalMessage,
    Relation,
    TruncateMessage,
    parse_message,
)
from tideline_capture.sources.postgres.replication.relations import Relations
from tideline_capture.sources.postgres.watermarks import is_another, parse_watermark, shortened
from tideline_capture.sources.watermark_key import WatermarkKey

_POLL_BYTES_MAX = 1 << 20
"""Large rows must not fill the memory before the amount read is checked."""
_BEGIN, _COMMIT, _MESSAGE = ord("B"), ord("C"), ord("M")
_HEAD_BYTES = 32
"""The part of a message that `_Bulk` reads."""
_LARGE_BYTES = 4096
"""The average size above which only the heads of messages are joined."""
_BULK = frozenset(b"BCIUD")
_NO_KIND = 0
"""The kind of a message without a byte."""
_LENGTHS: Int64Array = np.zeros(256, np.int64)
_LENGTHS[[_BEGIN, _COMMIT]] = 21, 26
"""The lengths of messages that always have the same, by kind."""
_LEAST_BYTES = 6
"""The least length of a row message: kind, relation, and what follows."""
_NONE: Int64Array = np.empty(0, np.int64)

Bytes = npt.NDArray[np.uint8]


class TransactionReader:
    """A `LogReader` over one replication cursor, whose stream has been started.

    ``images``: of which tables rows come with the row before. ``messages``: the prefixes of logical
    messages that are captured. A message of more than
    ``event_bytes_max`` is a stop, unless it is another application's: those are dropped before they
    are kept.
    """

    def __init__(
        self,
        cursor: Any,
        relations: Relations,
        *,
        key: WatermarkKey,
        captures: Callable[[str], bool],
        images: Callable[[str], bool] = lambda table: False,
        event_bytes_max: int = EVENT_BYTES_MAX,
        messages: Sequence[str] = (),
    ) -> None:
        self._messages = ApplicationMessages(messages, event_bytes_max)
        self.buffered_bytes = 0
        self.must_take = False
        self._cursor = cursor
        self._relations = relations
        self._key = key
        self._captures = captures
        self._images = images
        self._event_bytes_max = event_bytes_max
        self._pending: list[bytes] = []
        self._taken_to = self._read_to = 0
        self._open: tuple[int, int] | None = None
        self._commits: deque[tuple[int, int]] = deque()

    @property
    def at_commit(self) -> bool:
        """See `LogReader.at_commit`."""
        return bool(self._pending) and self._pending[-1][0] == _COMMIT

    @property
    def _xid(self) -> int:
        return 0 if self._open is None else self._open[0]

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        """See `LogReader.poll`. The loop is the hot path: one message costs well under 1 µs."""
        read, pending = self._cursor.read_message, self._pending
        append = pending.append
        size, count = 0, 0
        last = None
        try:
            while count < messages_max and size < _POLL_BYTES_MAX:
                message = read()
                if message is None:
                    break
                last = message
                payload = message.payload
                size += len(payload)
                count += 1
                kind = payload[0] if payload else _NO_KIND
                if kind not in _BULK:
                    if kind == _MESSAGE:
                        if self._messages.wants(payload):
                            pending += self._messages.as_rows(payload)
                            continue
                        if is_another(payload):
                            continue
                        payload = shortened(payload)
                    append(payload)
                    self.must_take = True
                    break
                append(payload)
                if until_commit and kind == _COMMIT:
                    break
        except psycopg2.Error as error:
            raise replication_failed(error) from None
        if size > self._event_bytes_max:
            self._check_largest()
        self.buffered_bytes += size
        if last is not None:
            self._read_to = last.data_start
        return count

    def _check_largest(self) -> None:
        """Raise Misconfigured when a message is larger than the settings allow. It is in memory
        then, but not decoded: that takes several times as much."""
        for payload in self._pending:
            if len(payload) > self._event_bytes_max:
                last = self._commits[-1][0] if self._commits else 0
                where = f"behind {PostgresPosition(last)}"
                raise too_large(len(payload), self._event_bytes_max, where)

    def take(self, next_seq: int) -> LogBatch:
        """See `LogReader.take`."""
        begin, end = self._taken_to, self._read_to
        with decoding(lambda: f"between {format_lsn(begin)} and {format_lsn(end)}"):
            batch = self._take(next_seq)
        self._taken_to = end
        return batch

    def _take(self, next_seq: int) -> LogBatch:
        pending, self._pending = self._pending, []
        rare = pending.pop() if self.must_take else None
        self.buffered_bytes, self.must_take = 0, False
        bulk = _Bulk(pending, self._open)
        self._open = bulk.open
        rows, messages, changes, unholdable = self._decode(bulk, next_seq, frozenset())
        with querying():
            controls = self._control(rare) if rare is not None else ()
        boundary = None
        if bulk.open is None and bulk.last_commit is not None:
            commit_lsn, end_lsn = bulk.last_commit
            self._commits.append((end_lsn, commit_lsn))
            boundary = Boundary(PostgresPosition(end_lsn))
        inside = bulk.open is not None
        return LogBatch(rows, changes, controls, boundary, inside, bulk.ended, unholdable, messages)

    def _decode(
        self, bulk: _Bulk, next_seq: int, without: frozenset[str]
    ) -> tuple[tuple[Rows, ...], tuple[Rows, ...], int, tuple[tuple[str, str], ...]]:
        """Return all row messages, by relation, and messages of applications. A table with a key
        that cannot be held is left out, and the others are renumbered: sequences must not have
        holes."""
        schemas: dict[int, TableSchema] = {}
        logged: list[int] = []
        for oid in bulk.relations():
            if oid <= OIDS_MAX:
                logged.append(oid)
                continue
            schema = self._relations.schema(oid)
            if schema.table not in without and self._captures(schema.table):
                schemas[oid] = schema
        known = [*schemas, *logged]
        kept = np.isin(bulk.oids, known) if known else np.zeros(bulk.rows, bool)
        sequences = next_seq + np.cumsum(kept, dtype=np.int64) - 1
        rows = []
        for oid, schema in schemas.items():
            chosen = np.flatnonzero(bulk.oids == oid)
            decoded = decode_rows(
                bulk.payloads(chosen),
                schema,
                seq=sequences[chosen],
                tx=bulk.xids[chosen],
                ts=bulk.times[chosen],
                image=self._images(schema.table),
            )
            if decoded.key_overflow:
                column = decoded.key_overflow[0]
                rest, messages, changes, more = self._decode(
                    bulk, next_seq, without | {schema.table}
                )
                return rest, messages, changes, ((schema.table, column), *more)
            rows.append(decoded.rows)
        messages = tuple(self._application_messages(bulk, oid, sequences) for oid in logged)
        return tuple(rows), messages, int(kept.sum()), ()

    def _application_messages(self, bulk: _Bulk, oid: int, sequences: Int64Array) -> Rows:
        chosen = np.flatnonzero(bulk.oids == oid)
        return self._messages.rows(
            oid,
            bulk.payloads(chosen),
            seq=sequences[chosen],
            tx=bulk.xids[chosen],
            ts=bulk.times[chosen],
        )

    def _control(self, payload: bytes) -> tuple[Control, ...]:
        message = parse_message(payload)
        if isinstance(message, Relation):
            return (self._relations.observe(message, self._xid),)
        if isinstance(message, TruncateMessage):
            tables = [self._relations.schema(oid).table for oid in message.relation_oids]
            return (Truncated(tuple(tables), self._xid),)
        if not isinstance(message, LogicalMessage) or not message.transactional:
            return ()
        watermark = parse_watermark(message.prefix, message.content, self._key)
        return () if watermark is None else (watermark,)

    def confirm(self, position: SourcePosition) -> None:
        """See `LogReader.confirm`."""
        if not isinstance(position, PostgresPosition):
            raise InvariantBroken(f"{position} is no position of PostgreSQL")
        commit_lsn = None
        while self._commits and self._commits[0][0] <= position.end_lsn:
            commit_lsn = self._commits.popleft()[1]
        try:
            if commit_lsn is not None:
                self._cursor.send_feedback(flush_lsn=commit_lsn - 1, force=True)
            else:
                self._cursor.send_feedback(force=True)
        except psycopg2.Error as error:
            raise replication_failed(error) from None

    def wait(self, timeout_s: float) -> None:
        try:
            select.select([self._cursor], [], [], timeout_s)
        except psycopg2.Error as error:
            raise replication_failed(error) from None

    def close(self) -> None:
        self._cursor.connection.close()
        self._relations.close()


class _Bulk:
    """Begin, commit and row messages of a batch, taken apart.

    Per row message: ``oids`` (relation), ``xids`` and ``times`` (of its transaction). ``ended`` are
    the ids of the transactions that end in the batch, ``open`` is the one that does not.
    """

    def __init__(self, messages: Sequence[bytes], begun: tuple[int, int] | None) -> None:
        self._messages = messages
        self.open = begun
        self.last_commit: tuple[int, int] | None = None
        self.ended = self.oids = self.xids = self.times = self._places = _NONE
        if messages:
            self._take_apart(messages, begun)

    @property
    def rows(self) -> int:
        return len(self.oids)

    def relations(self) -> list[int]:
        return [int(oid) for oid in np.unique(self.oids)]

    def payloads(self, chosen: Int64Array) -> Sequence[bytes]:
        if len(chosen) == len(self._messages):
            return self._messages
        return [self._messages[place] for place in self._places[chosen].tolist()]

    def _take_apart(self, messages: Sequence[bytes], begun: tuple[int, int] | None) -> None:
        if sum(map(len, messages)) > _LARGE_BYTES * len(messages):
            messages = [message[:_HEAD_BYTES] for message in messages]
        data = np.frombuffer(b"".join(messages), np.uint8)
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        starts = np.cumsum(lengths) - lengths
        kinds = data[starts]
        begins = kinds == _BEGIN
        commits = np.flatnonzero(kinds == _COMMIT)
        _check_lengths(kinds, lengths)
        times = _numbers(data, starts[begins] + 9, 8) + POSTGRES_EPOCH_US
        xids = _numbers(data, starts[begins] + 17, 4)
        if begun is not None:
            xids, times = np.append(begun[0], xids), np.append(begun[1], times)
        self._places = np.flatnonzero(~begins & (kinds != _COMMIT))
        self.oids = _numbers(data, starts[self._places] + 1, 4)
        of_transaction = np.cumsum(begins)[self._places] - (begun is None)
        if len(of_transaction) and (of_transaction[0] < 0 or not len(xids)):
            raise CorruptData("a row came outside a transaction")
        self.xids = xids[of_transaction] if len(of_transaction) else _NONE
        self.times = times[of_transaction] if len(of_transaction) else _NONE
        self.ended = xids[: len(commits)]
        if len(xids) > len(commits):
            self.open = (int(xids[-1]), int(times[-1]))
        else:
            self.open = None
        if len(commits):
            at = starts[commits[-1:]]
            self.last_commit = (
                int(_numbers(data, at + 2, 8)[0]),
                int(_numbers(data, at + 10, 8)[0]),
            )


def _check_lengths(kinds: Bytes, lengths: Int64Array) -> None:
    """Raise CorruptData where a message is shorter or longer than its kind: its fields would be
    read from its neighbour."""
    wanted = _LENGTHS[kinds]
    wrong = np.where(wanted > 0, lengths != wanted, lengths < _LEAST_BYTES)
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise CorruptData(
            f"a pgoutput message is broken: kind {bytes(kinds[place : place + 1])!r},"
            f" {lengths[place]} bytes"
        )


def _numbers(data: Bytes, at: Int64Array, width: int) -> Int64Array:
    """Return big-endian numbers of ``width`` bytes (unsigned below 8) at the offsets ``at``."""
    if not len(at):
        return _NONE
    taken = np.ascontiguousarray(data[at[:, None] + np.arange(width)])
    return taken.view(">i8" if width == 8 else ">u4").ravel().astype(np.int64)
