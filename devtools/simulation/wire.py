"""The simulated source's log, as a `LogReader` hands it to the worker.

It follows the real readers: rows come in bulk, everything else ends a batch, a batch may end within
a transaction, and a table is described before its first rows on a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from devtools.simulation.connection import Connection, SourceSide
from devtools.simulation.log import DatabaseKind, LogEntry, LoggedChange, Xa
from devtools.simulation.rows import make_rows
from devtools.simulation.tables import Form
from tideline.contract.errors import Unavailable
from tideline.contract.position import MysqlPosition, PostgresPosition, SourcePosition
from tideline_capture.core.events import (
    Begun,
    Boundary,
    Control,
    GapSeen,
    LogBatch,
    PreparedSeen,
    Rows,
    SchemaSeen,
    StatementSeen,
    Truncated,
    UnknownWatermark,
    Watermark,
)
from tideline_capture.core.facts import TableFacts
from tideline_capture.core.visibility import invisible
from tideline_capture.sources.watermark_key import WatermarkKey

FILE = "bin.000001"
PLACES = 10_000
"""The number of places between an entry of the log and the next one, for its rows."""
LSN = 1_000
"""The position before the first entry of the log."""

Message = tuple[LogEntry, int, LoggedChange | Control | None]
"""An entry, the index within it, and the message; None ends the entry."""


def position_at(kind: DatabaseKind, position: int) -> SourcePosition:
    """Return the position behind entry ``position`` of the log, in the source's own words."""
    if kind is DatabaseKind.POSTGRES:
        return PostgresPosition(LSN + position)
    return MysqlPosition(FILE, LSN + position)


def index_of(position: SourcePosition) -> int:
    """Return the entry that ``position`` is behind; 0 before all."""
    at = position.end_lsn if isinstance(position, PostgresPosition) else position.offset
    return max(at - LSN, 0)


class SimulatedReader:
    """A `LogReader` over one connection."""

    def __init__(
        self,
        source: SourceSide,
        connection: Connection,
        key: WatermarkKey,
        position: SourcePosition,
        captures: Callable[[str], bool],
        prepared: Mapping[str, SourcePosition],
    ) -> None:
        self.must_take = False
        self.buffered_bytes = 0
        self._source = source
        self._connection = connection
        self._key = key
        self._captures = captures
        self._prepared = {name: index_of(at) for name, at in prepared.items()}
        self._at = index_of(position)
        self._messages: Iterator[Message] = iter(())
        self._next: Message | None = None
        self._pending: list[Message] = []
        self._known: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._inside = False

    @property
    def at_commit(self) -> bool:
        return bool(self._pending) and self._pending[-1][2] is None

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        """See `LogReader.poll`."""
        self._connection.check()
        database, world = self._source.database, self._source.world
        if world.now < database.stalled_until:
            return 0
        count, most = 0, world.random.choice((12, 40, 150))
        while count < min(messages_max, most) and not self.must_take:
            message = self._following()
            if message is None:
                break
            self._pending.append(message)
            self._source.trouble.on_message(message[0], message[1])
            count += 1
            self.must_take = message[2] is not None and not isinstance(message[2], LoggedChange)
            if until_commit and message[2] is None:
                break
        self.buffered_bytes += count * 100
        return count

    def take(self, next_seq: int) -> LogBatch:
        """See `LogReader.take`."""
        pending, self._pending = self._pending, []
        self.must_take, self.buffered_bytes = False, 0
        groups: dict[tuple[str, str], list[tuple[int, int, int, LoggedChange]]] = {}
        controls: list[Control] = []
        ended: list[int] = []
        boundary, seq = None, next_seq
        for entry, index, written in pending:
            self._inside = written is not None
            if written is None:
                boundary = Boundary(position_at(self._source.database.kind, entry.position))
                if entry.xid and self._source.database.kind is DatabaseKind.POSTGRES:
                    ended.append(entry.xid)
            elif isinstance(written, LoggedChange):
                group = groups.setdefault((written.table, written.form.schema.fingerprint), [])
                group.append((seq, entry.xid, entry.position * PLACES + index, written))
                seq += 1
            else:
                controls.append(written)
        if "boundary-inside-transaction" in self._source.flaws and pending and self._inside:
            boundary = Boundary(position_at(self._source.database.kind, pending[-1][0].position))
            self._inside = False
        return LogBatch(
            rows=tuple(self._rows(group) for group in groups.values()),
            changes=seq - next_seq,
            controls=tuple(controls),
            boundary=boundary if not self._inside else None,
            in_transaction=self._inside,
            transactions=np.array(ended, np.int64),
        )

    def confirm(self, position: SourcePosition) -> None:
        """See `LogReader.confirm`."""
        self._connection.check()
        self._source.trouble.on_point("before-confirm")
        database = self._source.database
        if database.kind is DatabaseKind.POSTGRES and database.slot is not None:
            database.slot = max(database.slot, index_of(position))
        self._source.trouble.on_point("after-confirm")

    def wait(self, timeout_s: float) -> None:
        self._source.nap()

    def close(self) -> None:
        self._connection.open = False

    # -- inside --------------------------------------------------------------------------------

    def _rows(self, group: list[tuple[int, int, int, LoggedChange]]) -> Rows:
        return make_rows(group)

    def _following(self) -> Message | None:
        """Return the next message that has arrived, or None."""
        message, self._next = self._next, None
        if message is None:
            message = next(self._messages, None)
        database = self._source.database
        while message is None and self._at < database.end:
            entry = database.log[self._at]
            if entry.at + 0.001 > self._source.world.now:
                return None
            self._at += 1
            self._messages = self._say(entry)
            message = next(self._messages, None)
        return message

    def _say(self, entry: LogEntry) -> Iterator[Message]:
        """Return the messages that a connection gets for ``entry``."""
        flaws, index = self._source.flaws, 0
        if entry.packed and "skips-unknown-events" in flaws:
            return
        if entry.savepoint and "abort-drops-transaction" in flaws:
            return
        for control in self._controls(entry):
            yield entry, index, control
        for change in self._changes(entry):
            yield from self._described(entry, index, change)
            if not self._captures(change.table):
                self._source.database.passed.add((change.table, entry.position))
            if change.op != "t" and self._captures(change.table):
                index += 1
                yield entry, index, self._as_logged(change)
        if entry.xa is Xa.COMMIT:
            yield entry, index, PreparedSeen(entry.xa_id, None)
        yield entry, index, None

    def _changes(self, entry: LogEntry) -> tuple[LoggedChange, ...]:
        eager = "xa-rows-at-prepare" in self._source.flaws
        if entry.xa is None:
            changes = entry.changes
            if "one-lsn-one-order" in self._source.flaws:
                return tuple(reversed(changes))
            return changes
        if entry.xa is Xa.PREPARE:
            return entry.changes if eager else ()
        if entry.xa is Xa.ROLLBACK or eager:
            return ()
        at = self._prepared.pop(entry.xa_id, None)
        if at is None:
            raise Unavailable(f"the log does not say where {entry.xa_id} was prepared")
        return self._source.database.log[at - 1].changes

    def _controls(self, entry: LogEntry) -> Iterator[Control]:
        kind = self._source.database.kind
        if entry.watermark is not None:
            written = entry.watermark
            ours = written.key is self._key or "marks-unsigned" in self._source.flaws
            yield (
                Watermark(written.kind, written.token, written.clock_us)
                if ours
                else UnknownWatermark()
            )
        if entry.statement is not None:
            statement = entry.statement
            begun = (Begun(statement.table, empty=True),) if statement.made else ()
            yield StatementSeen(
                statement.text,
                (statement.table,),
                statement.neutral,
                steps=statement.steps,
                begun=begun,
            )
        if entry.gap is not None:
            yield GapSeen(entry.gap)
        if entry.xa is Xa.PREPARE:
            self._prepared[entry.xa_id] = entry.position
            yield PreparedSeen(entry.xa_id, position_at(kind, entry.position))
        if entry.xa is Xa.ROLLBACK:
            self._prepared.pop(entry.xa_id, None)
            yield PreparedSeen(entry.xa_id, None)

    def _described(self, entry: LogEntry, index: int, change: LoggedChange) -> Iterator[Message]:
        # Transaction ids are PostgreSQL's; snapshots of the others do not know them.
        xid = entry.xid if self._source.database.kind is DatabaseKind.POSTGRES else 0
        if change.op == "t":
            yield entry, index, Truncated((change.table,), xid)
            return
        form = change.form
        # A column that takes the place of one of its name and type is described, too.
        known = form.schema.fingerprint, form.numbers
        if self._known.get(change.table) != known:
            self._known[change.table] = known
            facts = self._facts(form, xid)
            starts_capture = facts is not None
            yield (
                entry,
                index,
                SchemaSeen(form.schema, xid, facts=facts, starts_capture=starts_capture),
            )

    def _facts(self, form: Form, xid: int) -> TableFacts | None:
        """Return the catalog's present facts, if it shows the transaction, and the same columns."""
        database = self._source.database
        now = database.tables[form.schema.table].form
        if database.kind is not DatabaseKind.POSTGRES or now.schema != form.schema:
            return None
        unseen = len(invisible(np.array([xid], np.int64), database.snapshot()))
        return None if unseen else now.facts

    def _as_logged(self, change: LoggedChange) -> LoggedChange:
        if "unchanged-as-null" in self._source.flaws and change.unchanged and change.row:
            row = {**change.row, **dict.fromkeys(change.unchanged)}
            return replace(change, row=row, unchanged=())
        return change
