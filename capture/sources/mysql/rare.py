"""What the log's single events mean: files, statements, table maps, our marks, XA.

Rows of an XA transaction are in the log when it is prepared, before anybody knows whether it will
commit. They are passed over then, their place is remembered, and they are read once more from there
when the commit comes, or from memory if they are few; a rollback costs nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from capture.core.events import (
    Control,
    GapSeen,
    HeldSeen,
    SchemaSeen,
    StatementSeen,
    Truncated,
)
from capture.sources.mysql.board import Board
from capture.sources.mysql.bulk import OPERATIONS, EventColumns, read_begins, row_areas
from capture.sources.mysql.charsets import charset_of
from capture.sources.mysql.decode import walk_events
from capture.sources.mysql.event_codes import EventCode, is_gap, refusal
from capture.sources.mysql.framing import HEADER_BYTES
from capture.sources.mysql.gtid_events import parse_mariadb_gtid
from capture.sources.mysql.kept import KeptTransactions
from capture.sources.mysql.log_events import (
    Query,
    parse_format_description,
    parse_heartbeat,
    parse_heartbeat_v2,
    parse_query,
    parse_rotate,
    parse_xa_prepare,
)
from capture.sources.mysql.log_state import LogState
from capture.sources.mysql.statements import Kind, Statement, classify
from capture.sources.mysql.stream import BinlogStream
from capture.sources.mysql.table_cache import Role, TableCache
from capture.sources.mysql.watermarks import parse_mark
from tideline.contract.errors import CorruptData, Misconfigured, SourceLost, TidelineError
from tideline.contract.position import MysqlPosition, SourcePosition
from tideline.contract.schema import TableId

HELD_MAX = 1_000
_DUMMY_ID = 0xFFFFFF
"""MySQL ends a statement that changed no row with a row event of no table."""
_WITHIN = frozenset(
    {
        Kind.BEGIN,
        Kind.SAVEPOINT,
        Kind.ROLLBACK_TO,
        Kind.XA_START,
        Kind.XA_END,
        Kind.XA_PREPARE,
        Kind.DML,
        Kind.UNKNOWN,
    }
)
"""Statements that never end a transaction."""
_NO_ROWS = _WITHIN | {Kind.COMMIT, Kind.XA_COMMIT, Kind.OTHER}
_CHECKSUM_BYTES = 4


_EMPTIED = re.compile(rb"DELETE FROM `((?:[^`]|``)+)`\.`((?:[^`]|``)+)`")
"""What old releases of MySQL 8.0 write, in this very form, when they find a MEMORY table empty
after a restart. Such tables are not captured."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the reader may do. ``goes_on``: after a gap everything it may concern is dumped anew;
    otherwise it is a stop. ``holds_xa``: prepared transactions wait for their end; otherwise the
    first one is a stop. ``open_replay`` reads the log once more from a place in it.
    ``children_of`` are the tables that changes of one are carried over to, unlogged."""

    goes_on: bool
    holds_xa: bool
    captures: Callable[[str], bool]
    open_replay: Callable[[MysqlPosition], BinlogStream]
    children_of: Callable[[TableId], frozenset[str]]


class RareEvents:
    """Reads single events, and moves `LogState` on. ``held`` is where prepared transactions are."""

    def __init__(
        self,
        state: LogState,
        tables: TableCache,
        board: Board,
        *,
        incarnation: str,
        held: Mapping[str, SourcePosition],
        rules: Rules,
    ) -> None:
        self._state = state
        self._tables = tables
        self._board = board
        self._incarnation = incarnation
        self._held = held
        self._captures = rules.captures
        self._open_replay = rules.open_replay
        self._rules = rules
        self._kept = KeptTransactions()

    # -- marks by place ------------------------------------------------------------------------

    @property
    def has_marks(self) -> bool:
        """Whether marks wait to be placed."""
        return not self._board.empty

    @property
    def marks_ready(self) -> bool:
        """Whether this is the place of one of them."""
        return self._state.open is None and self._board.has_place(self._state.position)

    def place_marks(self) -> tuple[Control, ...]:
        """The marks whose place is here, if this is between two transactions."""
        if self._board.empty or self._state.open is not None:
            return ()
        return self._board.place(self._state.position)

    def close(self) -> None:
        """No mark will be placed any more."""
        self._board.close()

    # -- events --------------------------------------------------------------------------------

    def read(self, events: EventColumns, place: int) -> tuple[Control, ...]:
        """What the event at ``place`` means."""
        code = int(events.codes[place])
        if code == EventCode.TABLE_MAP:
            return self._describe(events.body(place))
        if OPERATIONS[code]:
            return self._read_mark(events, place)
        if code == EventCode.QUERY:
            return self._query(parse_query(events.body(place)))
        if code == EventCode.ROTATE:
            return self._rotate(events, place)
        if code == EventCode.FORMAT_DESCRIPTION:
            return self._begin_file(events, place)
        if code == EventCode.XA_PREPARE:
            return self._prepare(events.body(place))
        if code == EventCode.MARIADB_GTID:
            return self._begin_xa(events.part(slice(place, place + 1)))
        if code in (EventCode.HEARTBEAT, EventCode.HEARTBEAT_V2):
            return self._beat(events, place)
        if code == EventCode.STOP:
            return ()
        return self._refuse(events, place)

    def _describe(self, body: bytes) -> tuple[Control, ...]:
        known = self._tables.add(body)
        if known.role is not Role.CHOSEN or known.schema is None:
            return ()
        return (SchemaSeen(known.schema),)

    def _read_mark(self, events: EventColumns, place: int) -> tuple[Control, ...]:
        at = np.array([place])
        table_id = int(events.numbers(at, HEADER_BYTES, 6)[0])
        known = self._tables.get(table_id)
        if known is None and table_id == _DUMMY_ID:
            return ()
        if known is None or known.role is not Role.OURS:
            raise CorruptData("the binlog has rows of a table that it did not describe")
        if known.table is None:
            raise known.error or CorruptData("the table of marks cannot be read")
        areas = row_areas(events, at, len(known.table.columns))
        kinds = OPERATIONS[events.codes[at]]
        walked = walk_events(events.data, areas.starts, events.stops[at], kinds, known.table)
        count = int(walked.rows_per_event[0])
        if areas.partial.any() or not known.table.key:
            return ()  # Not as we write it; the mark that is waited for does not come.
        none = np.zeros(count, np.int64)
        batch = walked.to_batch(known.table.schema, seq=none, tx=none, ts=none).batch
        marks = [parse_mark(row, self._incarnation) for row in batch.to_pylist()]
        return tuple(mark for mark in marks if mark is not None)

    # -- files ---------------------------------------------------------------------------------

    def _rotate(self, events: EventColumns, place: int) -> tuple[Control, ...]:
        """The next file. What it says of itself has a checksum or has none, whatever the file
        before it had: this is found out by looking."""
        whole = _whole(events, place, self._state.source.checksum_bytes)
        checksum = int.from_bytes(whole[-_CHECKSUM_BYTES:], "little")
        if zlib.crc32(whole[:-_CHECKSUM_BYTES]) == checksum:
            whole = whole[:-_CHECKSUM_BYTES]
        rotate = parse_rotate(whole[HEADER_BYTES:])
        source = self._state.source
        moved = (rotate.file, rotate.position) != (source.file, source.at)
        if moved and self._state.open is not None and self._state.replay is None:
            raise CorruptData(f"a transaction in {source.file} does not end in that file")
        source.file, source.at = rotate.file, rotate.position
        self._tables.begin_file()
        return ()

    def _begin_file(self, events: EventColumns, place: int) -> tuple[Control, ...]:
        whole = _whole(events, place, self._state.source.checksum_bytes)
        description = parse_format_description(whole[HEADER_BYTES:])
        self._state.source.checksum_bytes = _CHECKSUM_BYTES if description.checksummed else 0
        self._tables.begin_file(description.server_version)
        return ()

    def _beat(self, events: EventColumns, place: int) -> tuple[Control, ...]:
        """Nothing was sent for a while; while the server skips what we have, this moves us on."""
        source = self._state.source
        body, low = events.body(place), int(events.numbers(np.array([place]), 13, 4)[0])
        old = events.codes[place] == EventCode.HEARTBEAT
        beat = parse_heartbeat(body, header_position=low) if old else parse_heartbeat_v2(body)
        at = low if beat.position is None else beat.position
        if self._state.open is None and beat.file == source.file and at > source.at:
            source.at = at
        return ()

    def _refuse(self, events: EventColumns, place: int) -> tuple[Control, ...]:
        """Events that do not tell what was changed, or are not known at all."""
        code = int(events.codes[place])
        flags = int(events.numbers(np.array([place]), 17, 2)[0])
        error = refusal(code, flags)
        if not is_gap(code):
            raise error
        if code == EventCode.PARTIAL_UPDATE_ROWS:
            return self._refuse_partial(events, place, error)
        gap = self._gap(error, error.message)
        if code == EventCode.INCIDENT:  # All that its transaction has.
            self._state.end()
        return (gap,)

    def _refuse_partial(
        self, events: EventColumns, place: int, error: TidelineError
    ) -> tuple[Control, ...]:
        known = self._tables.get(int(events.numbers(np.array([place]), HEADER_BYTES, 6)[0]))
        if known is None:
            raise CorruptData("the binlog has rows of a table that it did not describe")
        if known.role is not Role.CHOSEN or not self._captures(str(known.name)):
            return ()
        reason = f"{error.message}, of {known.name}"
        return (self._gap(error, reason, (str(known.name),)),)

    def _gap(
        self, error: TidelineError, reason: str, tables: tuple[str, ...] | None = None
    ) -> Control:
        """Stop with ``error``, or have what it may concern dumped anew."""
        if self._rules.goes_on:
            return GapSeen(reason, tables)
        raise type(error)(
            f"{reason}, at {self._state.position}",
            hint=f'{error.hint or "look at the server"}; then set source.on_gap = "dump" to go'
            " on with dumps of what it may concern",
        )

    # -- statements ----------------------------------------------------------------------------

    def _query(self, query: Query) -> tuple[Control, ...]:
        statement = self._classify(query)
        state, kind = self._state, statement.kind
        if state.replay is not None:
            return ()  # XA START, XA END: the frame of the rows that are read again.
        if kind is Kind.XA_START and statement.xid is not None:
            state.preparing = str(statement.xid)
            self._kept.begin()
            return ()
        if kind is Kind.XA_COMMIT and statement.xid is not None and not statement.one_phase:
            return self._commit(str(statement.xid))
        controls: tuple[Control, ...] = ()
        if kind is Kind.XA_ROLLBACK and statement.xid is not None:
            self._kept.drop(str(statement.xid))
            controls = (HeldSeen(str(statement.xid), None), *self._rolled_back())
        elif kind in (Kind.ROLLBACK, Kind.ROLLBACK_TO):
            controls = self._rolled_back()
        elif kind in (Kind.DML, Kind.UNKNOWN) and not self._is_emptied(query):
            controls = self._unreadable(statement)
        elif kind not in _NO_ROWS:
            controls = self._changed(query, statement)
        if self._ends(query, statement):
            state.end()
        return controls

    def _classify(self, query: Query) -> Statement:
        collation = query.client_collation
        return classify(
            query.text,
            default_schema=query.schema,
            charset="utf8mb4" if collation is None else charset_of(collation)[0],
            ansi_quotes=query.ansi_quotes,
            no_backslash_escapes=query.no_backslash_escapes,
        )

    def _ends(self, query: Query, statement: Statement) -> bool:
        """Whether the statement is the last of its transaction. MariaDB says so beforehand; of
        MySQL, all but the frames do, unless rows of CREATE TABLE … SELECT follow."""
        opened = self._state.open
        if opened is not None and opened.standalone:
            return True
        if statement.kind in _WITHIN:
            return False
        if opened is not None and (opened.mariadb or opened.framed):
            return statement.kind in (Kind.COMMIT, Kind.ROLLBACK)
        return not query.text.rstrip().endswith(b"START TRANSACTION")

    def _changed(self, query: Query, statement: Statement) -> tuple[Control, ...]:
        """DDL on tables. Names are compared without their case: a server may fold it."""
        # A table that is made, and is known already, may have been made in the place of another.
        made = statement.kind is Kind.CREATE_TABLE and not statement.replaces
        news = (new for _, new in statement.renames)
        tables = tuple(dict.fromkeys(str(table) for table in (*statement.tables, *news)))
        self._tables.forget(tables)
        if statement.kind is Kind.TRUNCATE:
            return (Truncated(tables),)
        text = query.text.decode(errors="backslashreplace")
        neutral = statement.neutral or made
        return (StatementSeen(text, tables, neutral, statement.schema or None),)

    def _is_emptied(self, query: Query) -> bool:
        """Whether it says that a table that is not captured lost all of its rows."""
        emptied = _EMPTIED.fullmatch(query.text)
        if emptied is None:
            return False
        schema, name = (part.replace(b"``", b"`").decode() for part in emptied.groups())
        return not self._captures(str(TableId(schema, name)))

    def _unreadable(self, statement: Statement) -> tuple[Control, ...]:
        what = f"a statement ({statement.words or 'not understood'}) is in the log, not its rows"
        if statement.kind is Kind.UNKNOWN:
            what = f"a statement of the log ({statement.words or 'no words'}) is not understood"
        error = SourceLost(
            what, hint="SET GLOBAL binlog_format = 'ROW', and end sessions that set another"
        )
        return (self._gap(error, what),)

    def _rolled_back(self) -> tuple[Control, ...]:
        """Rows that were in the log are undone. What a transaction lost before it was logged is
        not in the log at all, so this is about tables without transactions."""
        state = self._state
        if not state.wrote and state.preparing is None:
            return ()
        what = "rows of the log were rolled back after they had been logged"
        error = SourceLost(what, hint="keep tables without transactions out of transactions")
        return (self._gap(error, what, None if state.preparing else tuple(sorted(state.wrote))),)

    # -- XA ------------------------------------------------------------------------------------

    def _begin_xa(self, event: EventColumns) -> tuple[Control, ...]:
        """MariaDB's beginning of an XA transaction that is prepared only; in a replay it is the one
        whose commit is being read."""
        state, gtid = self._state, parse_mariadb_gtid(event.body(0))
        if state.replay is None:
            state.pass_over(event, read_begins(event), -1)
            state.preparing = str(gtid.xid)
            self._kept.begin()
        return ()

    def keep(self, packets: bytes) -> None:
        """Events of the XA transaction that is being prepared, those that `replays` alone."""
        self._kept.add(packets)

    def _prepare(self, body: bytes) -> tuple[Control, ...]:
        state, prepared = self._state, parse_xa_prepare(body)
        if state.replay is not None:
            state.replay.close()
            state.replay = None
            state.end()
            return ()
        opened, state.preparing = state.open, None
        if opened is None:
            raise CorruptData("the binlog prepares a transaction that it did not begin")
        xid = str(prepared.xid)
        self._kept.end(xid, state.source.checksum_bytes)
        if prepared.one_phase:
            state.replay = self._kept.open(xid, opened.start, self._open_replay)
            return ()
        if not self._rules.holds_xa:
            raise Misconfigured(
                f"an XA transaction was prepared, before {state.position}",
                hint='source.xa = "hold" reads its rows once it commits',
            )
        if len(self._held) >= HELD_MAX:
            raise Misconfigured(
                f"more than {HELD_MAX} XA transactions are prepared and not ended",
                hint="XA RECOVER lists them; XA COMMIT or XA ROLLBACK those that were forgotten",
            )
        state.end()
        return (HeldSeen(xid, opened.start),)

    def _commit(self, xid: str) -> tuple[Control, ...]:
        place = self._held.get(xid)
        if not isinstance(place, MysqlPosition):
            # Prepared before we began to read: its rows are in no part, and in no dump so far.
            self._state.end()
            return (GapSeen("an XA transaction committed that was prepared before the start"),)
        try:
            self._state.replay = self._kept.open(xid, place, self._open_replay)
        except SourceLost as error:
            self._state.end()
            return (HeldSeen(xid, None), self._gap(error, error.message))
        return (HeldSeen(xid, None),)


def replays(code: int) -> bool:
    """Whether an event of a prepared transaction says something when it is read again."""
    return bool(OPERATIONS[code]) or code in (EventCode.TABLE_MAP, EventCode.XA_PREPARE)


def _whole(events: EventColumns, place: int, checksum_bytes: int) -> bytes:
    """The event with its header and whatever stands behind its body."""
    stop = int(events.stops[place]) + checksum_bytes
    return events.data[int(events.starts[place]) : stop].tobytes()
