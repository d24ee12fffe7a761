"""MySQL and MariaDB as a source: identity, resume position, and what reads it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import pymysql
import structlog
from msgspec.structs import replace

from capture.points import OnPoint, pass_by
from capture.sources.choices import choices_of
from capture.sources.mysql.board import Board, PlacedMarks
from capture.sources.mysql.catalog import (
    Flavour,
    has_generated_columns,
    is_chosen,
    list_tables,
    natives,
    read_tables,
)
from capture.sources.mysql.chunks import RowChunkReader
from capture.sources.mysql.connect import ANSWER_S, connect, flavour, query_failed
from capture.sources.mysql.executed import make_executed
from capture.sources.mysql.gtid import MariadbGtids
from capture.sources.mysql.log_state import LogState
from capture.sources.mysql.marks import Marks
from capture.sources.mysql.names import qualified, quoted
from capture.sources.mysql.preflight import require_settings
from capture.sources.mysql.pulses import Pulses
from capture.sources.mysql.rare import RareEvents
from capture.sources.mysql.rules import Rules
from capture.sources.mysql.server_ids import free_server_id, server_name
from capture.sources.mysql.snapshot_copy import Copies, SnapshotCopy
from capture.sources.mysql.stream import OFFSET_MAX, BinlogStream, open_stream
from capture.sources.mysql.table_cache import Role, TableCache
from capture.sources.mysql.transactions import BinlogReader
from capture.sources.mysql.watch import Cascades, CatalogWatch
from capture.sources.mysql.watermarks import (
    CREATE_DATABASE,
    CREATE_TABLE,
    SESSION,
    WrittenMarks,
    check_form,
    watermark_table,
)
from capture.sources.sockets import Opened, end
from capture.sources.streams import Streams
from tideline.contract.errors import Misconfigured, SourceLost
from tideline.contract.manifest import Manifest
from tideline.contract.position import MysqlPosition, SourceIdentity, SourcePosition
from tideline.contract.schema import TableId
from tideline.settings import Settings

_ANEW = "start the pipeline anew under another name, which dumps every table"
_PARSE_ERROR = 1064
_SENT_EARLY_S = 10
_ANSWER_MIN_S = _SENT_EARLY_S + 5.0
"""Nothing that a session waits for takes longer than a wait for what was sent early."""

log = structlog.get_logger("tideline.mysql")


class MysqlSource:
    """A `Source`. Every object it makes has connections of its own; the board joins the reader
    with the others where marks are not written."""

    def __init__(self, settings: Settings, *, on_point: OnPoint = pass_by) -> None:
        self._settings = settings
        self._on_point = on_point
        self._source = settings.source
        self._choices = choices_of(settings)
        self._streams: Streams[SnapshotCopy] = Streams()
        self._application = f"tideline {settings.pipeline}"
        self._ours = watermark_table(self._source.watermark_database)
        self._board = Board()
        self._cascades = Cascades()
        self._flavour: Flavour = "mysql"
        self._term = 0
        self._server_ids: dict[tuple[str, int], int] = {}
        self._rivals: set[int] = set()
        self._opened = Opened()
        self._answer_s = max(settings.capture.mark_timeout_s, _ANSWER_MIN_S)

    def identity(self) -> SourceIdentity:
        """The server, by its own name for itself."""
        with self._asking("identify") as connection:
            return self._identify(connection)

    def begin(self) -> MysqlPosition:
        return MysqlPosition("", 0)

    # -- resuming ------------------------------------------------------------------------------

    def resume(self, tail: Manifest, on_waiting: Callable[[str], None]) -> MysqlPosition:
        """See `Preflight.resume`. On another server than the chain's the log is followed by GTID,
        if that server holds everything that the chain holds."""
        self._end_opened()
        position = _binlog(tail.position)
        self._term = tail.term
        with self._asking("prepare") as connection, connection.cursor() as cursor:
            try:
                identity = self._identify(connection)
                databases = self._logged(cursor)
                require_settings(connection, read_only=self._source.read_only, databases=databases)
                if not self._source.read_only:
                    self._make_table(cursor)
                if position == self.begin():
                    return self._now(cursor)
                if identity != tail.identity:
                    return self._fail_over(cursor, position, tail, identity)
                self._check_log(cursor, position)
                return position
            except pymysql.Error as error:
                raise query_failed(error) from None

    def _logged(self, cursor: Any) -> set[str]:
        """The databases whose changes the log must hold."""
        source = self._source
        tables = list_tables(cursor, source.tables, source.exclude, ours=(self._ours,))
        ours = set() if source.read_only else {self._ours.schema}
        return ours | {table.schema for table in tables}

    def _identify(self, connection: Any) -> SourceIdentity:
        self._flavour = "mariadb" if flavour(connection) == "mariadb" else "mysql"
        with connection.cursor() as cursor:
            return SourceIdentity(self._flavour, server_name(cursor, self._flavour), 0, "")

    def _make_table(self, cursor: Any) -> None:
        """The table of marks, unless it is there: the user may lack the right to make it."""
        if check_form(cursor, self._ours):
            return
        cursor.execute(CREATE_DATABASE.format(database=quoted(self._ours.schema)))
        cursor.execute(CREATE_TABLE.format(table=qualified(self._ours)))

    def _now(self, cursor: Any) -> MysqlPosition:
        """The end of the log. What was committed before it is for the dumps."""
        for statement in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
            try:
                cursor.execute(statement)
            except pymysql.Error as error:
                if error.args[0] != _PARSE_ERROR:
                    raise
            else:
                break
        row = cursor.fetchone()
        if row is None:
            raise Misconfigured(
                "the server writes no binary log", hint="set log_bin, and restart the server"
            )
        file, offset = str(row[0]), int(row[1])
        if self._flavour == "mariadb":
            cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, offset))
            return MysqlPosition(file, offset, str(cursor.fetchone()[0] or ""))
        # What is in the log and not visible yet is no part of the GTIDs: they and an offset never
        # fit each other while anybody writes, and only the log itself can say which is which.
        gtids = self._gtids(cursor)
        cursor.execute("SELECT @@GLOBAL.gtid_mode")
        if cursor.fetchone()[0] == "ON":
            return MysqlPosition("", 0, gtids, by_gtid=True)
        return MysqlPosition(file, offset)

    def _gtids(self, cursor: Any) -> str:
        variable = "gtid_binlog_pos" if self._flavour == "mariadb" else "gtid_executed"
        cursor.execute(f"SELECT @@GLOBAL.{variable}")
        return str(cursor.fetchone()[0] or "").replace("\n", "")

    def _check_log(self, cursor: Any, position: MysqlPosition) -> None:
        """The server's files still hold what comes next, and it has not forgotten what was."""
        if position.by_gtid:
            self._check_gtids(cursor, position)
            return
        files = _files(cursor)
        if position.file not in files:
            oldest = min(files, default="none")
            raise SourceLost(
                f"the server purged its log: the chain ends at {position}, the oldest file is"
                f" {oldest}; changes between them are lost",
                hint=f"keep the log for longer (binlog_expire_logs_seconds), then {_ANEW}",
            )
        if files[position.file] < position.offset or not self._holds(cursor, position):
            raise SourceLost(
                f"the server's log is not the one that it was: it ends before {position}",
                hint=f"was the server restored, or its log reset? {_ANEW}",
            )

    def _check_gtids(self, cursor: Any, position: MysqlPosition) -> None:
        """MySQL tells which transactions its files no longer hold; MariaDB only when it is asked
        for the log."""
        if not self._covers(cursor, position.gtids):
            raise SourceLost(
                f"the server's log is not the one that it was: it does not have {position.gtids}",
                hint=f"was the server restored, or its log reset? {_ANEW}",
            )
        if self._flavour == "mysql":
            cursor.execute("SELECT @@GLOBAL.gtid_purged")
            purged = str(cursor.fetchone()[0] or "").replace("\n", "")
            if purged and not make_executed(self._flavour, position.gtids).covers(purged):
                raise SourceLost(
                    f"the server purged its log: the chain ends at {position}, and {purged} is no"
                    " longer held; changes between them are lost",
                    hint=f"keep the log for longer (binlog_expire_logs_seconds), then {_ANEW}",
                )

    def _fail_over(
        self, cursor: Any, position: MysqlPosition, tail: Manifest, identity: SourceIdentity
    ) -> MysqlPosition:
        """The position on another server that has all we have, by GTID."""
        what = f"this is another server, {identity.system_id}; the chain is of"
        if identity.kind != tail.identity.kind:
            raise SourceLost(
                f"{what} {tail.identity.kind} {tail.identity.system_id}",
                hint=f"point source.url at the right server, or {_ANEW}",
            )
        what = f"{what} {tail.identity.system_id}"
        if not position.gtids:
            raise SourceLost(
                f"{what}, and its position is a file's: files of another server mean nothing",
                hint=f"point source.url at the right server, or {_ANEW}",
            )
        if tail.state is not None and tail.state.held:
            raise SourceLost(
                f"{what}, where the rows of prepared XA transactions lie elsewhere", hint=_ANEW
            )
        if not self._covers(cursor, position.gtids):
            raise SourceLost(
                f"{what}, and it does not have all of {position.gtids}: it is no replica, or lags",
                hint=f"wait until it has caught up, point source.url at a replica, or {_ANEW}",
            )
        log.warning("another server: the log is followed by GTID", server=identity.system_id)
        return MysqlPosition("", 0, position.gtids, by_gtid=True)

    def _covers(self, cursor: Any, gtids: str) -> bool:
        """Whether the server's log, or what it forgot of it, has everything in ``gtids``. MySQL
        sends a transaction before it says that it has it."""
        if gtids and self._flavour == "mysql":
            wait = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"
            cursor.execute(wait, (gtids, _SENT_EARLY_S))
            return not cursor.fetchone()[0]
        return not gtids or make_executed(self._flavour, self._gtids(cursor)).covers(gtids)

    def _holds(self, cursor: Any, position: MysqlPosition) -> bool:
        """Whether the server's file has at that offset what the chain had there. MariaDB's own name
        for itself can be another server's too, with another history."""
        if self._flavour == "mysql" or not position.gtids:
            return self._covers(cursor, position.gtids)
        cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (position.file, position.offset))
        return MariadbGtids.parse(str(cursor.fetchone()[0] or "")) == MariadbGtids.parse(
            position.gtids
        )

    # -- reading -------------------------------------------------------------------------------

    def log_reader(
        self,
        position: SourcePosition,
        incarnation: str,
        captures: Callable[[str], bool],
        held: Mapping[str, SourcePosition],
    ) -> BinlogReader:
        """See `Source.log_reader`."""
        begin = _binlog(position)
        self._learn_cascades()
        self._board = Board()
        far = begin.offset > OFFSET_MAX and bool(begin.gtids)
        stream = self._open(begin, incarnation, by_gtid=begin.by_gtid or far)
        least = replace(begin, by_gtid=begin.by_gtid or far)
        state = LogState(stream, make_executed(self._flavour, begin.gtids), least=least)
        tables = TableCache(self._role, self._natives, captures, self._choices)
        rules = Rules(
            goes_on=self._source.on_gap == "dump",
            holds_xa=self._source.xa == "hold",
            captures=captures,
            open_replay=lambda place: self._open_replay(place, f"{incarnation} replay"),
            children_of=self._cascades.children_of,
            images=lambda table: self._choices(table).image,
            derives=self._derives,
        )
        rare = RareEvents(
            state, tables, self._board, incarnation=incarnation, held=held, rules=rules
        )
        return BinlogReader(state, tables, rare, rules)

    def chunk_reader(self, incarnation: str) -> RowChunkReader:
        """See `Source.chunk_reader`."""
        return RowChunkReader(
            self._marks(incarnation),
            self._connect("chunks"),
            flavour=self._flavour,
            lock_timeout_s=self._settings.capture.lock_timeout_s,
            cascades=self._source.cascades,
            holds_xa=self._source.xa == "hold",
            on_point=self._on_point,
            choices=self._choices,
            copies=self._copies(incarnation),
        )

    def _copies(self, incarnation: str) -> Copies:
        def connect() -> Any:
            return self._connect("copies")

        def pulses(token: str) -> Pulses:
            return Pulses(
                lambda: self._connect("pulses", SESSION),
                incarnation=incarnation,
                database=self._source.watermark_database,
                token=token,
            )

        return Copies(self._streams, connect, None if self._source.read_only else pulses)

    def watch(self, incarnation: str) -> CatalogWatch:
        """See `Source.watch`."""
        return CatalogWatch(
            self._connect("catalog"),
            self._marks(incarnation),
            flavour=self._flavour,
            settings=self._source,
            ours=(self._ours,),
            cascades=self._cascades,
            choices=self._choices,
        )

    def keep_copies(self, tokens: Collection[str]) -> None:
        """See `Source.keep_copies`."""
        self._streams.keep(tokens)

    def _marks(self, incarnation: str) -> Marks:
        connection = self._connect("marks", SESSION)
        if self._source.read_only:
            return PlacedMarks(connection, self._board, flavour=self._flavour)
        database = self._source.watermark_database
        return WrittenMarks(connection, incarnation=incarnation, database=database)

    def _open_replay(self, place: MysqlPosition, name: str) -> BinlogStream:
        """The log once more, from where it has the rows of an XA transaction. Raises SourceLost."""
        with self._asking("replay") as connection, connection.cursor() as cursor:
            if place.file not in _files(cursor):
                raise SourceLost(
                    f"the server purged {place.file}, which held rows of an XA transaction that"
                    " committed later",
                    hint="keep the log for longer (binlog_expire_logs_seconds)",
                )
        return self._open(place, name)

    def _open(self, position: MysqlPosition, name: str, *, by_gtid: bool = False) -> BinlogStream:
        server_id = self._server_id(f"{self._settings.pipeline} {name}")
        stream = open_stream(
            self._source,
            position,
            flavour=self._flavour,
            server_id=server_id,
            application_name=f"{self._application} log",
            by_gtid=by_gtid,
        )
        stream.on_rival = partial(self._rivals.add, server_id)
        return stream

    def _server_id(self, name: str) -> int:
        """One id per stream and term: so the server ends the stream that ours takes the place of,
        which it would notice only later by itself. Where somebody else turns out to have it, the
        next one, or the two would end each other for ever."""
        known = self._server_ids.get((name, self._term))
        if known is None or known in self._rivals:
            with self._asking("server id") as connection, connection.cursor() as cursor:
                known = free_server_id(cursor, name, self._term, taken=self._rivals)
            self._server_ids[name, self._term] = known
        return known

    def _learn_cascades(self) -> None:
        """Before anything is read: the first look at the catalog comes later."""
        if self._source.cascades == "refuse":
            return
        with self._asking("cascades") as connection, connection.cursor() as cursor:
            try:
                source = self._source
                tables = list_tables(cursor, source.tables, source.exclude, ours=(self._ours,))
                found = read_tables(cursor, tables, flavour=self._flavour, cascades="redump")
            except pymysql.Error as error:
                raise query_failed(error) from None
        self._cascades.learn(found)

    def _role(self, table: TableId) -> Role:
        if table == self._ours:
            return Role.OURS
        source = self._source
        chosen = is_chosen(table, source.tables, source.exclude)
        return Role.CHOSEN if chosen else Role.OTHER

    def _natives(self, table: TableId) -> Mapping[str, str]:
        if self._flavour != "mariadb":
            return {}
        with self._asking("types") as connection, connection.cursor() as cursor:
            try:
                return natives(cursor, [table]).get(table, {})
            except pymysql.Error as error:
                raise query_failed(error) from None

    def _derives(self, table: TableId) -> bool:
        with self._asking("types") as connection, connection.cursor() as cursor:
            try:
                return has_generated_columns(cursor, table)
            except pymysql.Error as error:
                raise query_failed(error) from None

    def _asking(self, role: str) -> closing[Any]:
        """A connection that the session waits for: nothing else would notice that answers no longer
        come."""
        return closing(self._connect(role, answer_s=self._answer_s))

    def _connect(
        self,
        role: str,
        settings: Mapping[str, str] | None = None,
        *,
        answer_s: float = ANSWER_S,
    ) -> Any:
        name = f"{self._application} {role}"
        connection = connect(
            self._source, application_name=name, settings=settings, answer_s=answer_s
        )
        self._opened.add(connection)
        return connection

    def _end_opened(self) -> None:
        """End what the session before left open: a thread of it may wait there for an answer that
        never comes."""
        for connection in self._opened.take():
            sock = connection._sock
            if sock is not None:
                end(sock.fileno())


def _files(cursor: Any) -> dict[str, int]:
    """The server's files of the log, and how many bytes each has."""
    cursor.execute("SHOW BINARY LOGS")
    return {str(row[0]): int(row[1]) for row in cursor.fetchall()}


def _binlog(position: SourcePosition) -> MysqlPosition:
    if not isinstance(position, MysqlPosition):
        raise SourceLost(f"{position} is no position of a binlog", hint=_ANEW)
    return position
