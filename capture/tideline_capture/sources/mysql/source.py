"""MySQL and MariaDB as a source: identity, resume position, and its readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from tideline.contract.errors import SourceLost
from tideline.contract.manifest import Manifest
from tideline.contract.position import MysqlPosition, SourceIdentity, SourcePosition
from tideline.contract.schema import TableId
from tideline.programs.points import OnPoint, pass_by
from tideline.settings import Settings
from tideline.settings.sources.mysql import MysqlSection
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.finding import START_OVER, Finding
from tideline_capture.sources.key_configuration import key_configurations_of
from tideline_capture.sources.mysql.binlog.executed import make_executed
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.rare import RareEvents
from tideline_capture.sources.mysql.binlog.rules import LogRules
from tideline_capture.sources.mysql.binlog.stream import OFFSET_MAX, BinlogStream, open_stream
from tideline_capture.sources.mysql.binlog.table_cache import Role, TableCache
from tideline_capture.sources.mysql.binlog.transactions import BinlogReader
from tideline_capture.sources.mysql.catalog.tables import (
    Flavour,
    MysqlCatalogTable,
    has_generated_columns,
    is_chosen,
    is_refused,
    list_tables,
    natives,
    read_tables,
)
from tideline_capture.sources.mysql.catalog.watch import Cascades, MysqlWatch
from tideline_capture.sources.mysql.checks.preflight import check, check_url, require_settings
from tideline_capture.sources.mysql.checks.server_log import (
    SENT_EARLY_S,
    ServerLog,
    check_watermarks,
    log_files,
)
from tideline_capture.sources.mysql.connect import (
    ANSWER_S,
    connect,
    flavour,
    querying,
)
from tideline_capture.sources.mysql.server_ids import ServerIds, server_name
from tideline_capture.sources.mysql.snapshot.chunks import CopyAccess, RowChunkReader
from tideline_capture.sources.mysql.snapshot.probes import ProbeWriters
from tideline_capture.sources.mysql.snapshot.snapshot_copy import StatementCopy
from tideline_capture.sources.mysql.watermark_registry import RegistryWatermarks, WatermarkRegistry
from tideline_capture.sources.mysql.watermark_writer import WatermarkWriter
from tideline_capture.sources.mysql.watermarks import (
    SESSION,
    TableWatermarks,
    make_table,
    watermark_table,
)
from tideline_capture.sources.sockets import Opened, end
from tideline_capture.sources.streams import Streams
from tideline_capture.sources.watermark_key import WatermarkKey

_ANSWER_MIN_S = SENT_EARLY_S + 5.0
"""No wait of a session is longer than a wait for what was sent early."""

_Answer = TypeVar("_Answer")


class MysqlSource:
    """A `Source`. Every object it makes has its own connections; the registry joins the reader with
    the others where watermarks are not written."""

    def __init__(self, settings: Settings, *, on_point: OnPoint = pass_by) -> None:
        self._settings = settings
        self._on_point = on_point
        self._source = settings.source
        self._own = settings.source.section(MysqlSection)
        self._key_configurations = key_configurations_of(settings)
        self._streams: Streams[StatementCopy] = Streams()
        self._application = f"tideline {settings.pipeline}"
        self._ours = watermark_table(self._own.watermark_database)
        self._registry = WatermarkRegistry()
        self._cascades = Cascades()
        self._flavour: Flavour = "mysql"
        self._folds = False
        self._term = 0
        self._server_ids = ServerIds()
        self._opened = Opened()
        self._answer_s = max(settings.capture.mark_timeout_s, _ANSWER_MIN_S)

    def identity(self) -> SourceIdentity:
        """Return the server, by its own name for itself."""
        with self._asking("identify") as connection:
            return self._identify(connection)

    def check(self, chain_end: Callable[[], ChainTail]) -> list[Finding]:
        """See `Preflight.check`."""
        return check(self._settings, chain_end)

    def check_url(self) -> list[Finding]:
        """See `Preflight.check_url`."""
        return check_url(self._settings)

    def begin(self) -> MysqlPosition:
        return MysqlPosition("", 0)

    # -- resuming ------------------------------------------------------------------------------

    def resume(self, tail: Manifest, on_waiting: Callable[[str], None]) -> MysqlPosition:
        """See `Preflight.resume`. On another server than the chain's the log is followed by GTID,
        if that server holds everything that the chain holds."""
        self._end_opened()
        position = _binlog(tail.position)
        self._term = tail.term
        with self._asking("prepare") as connection, connection.cursor() as cursor, querying():
            identity = self._identify(connection)
            databases = self._logged(cursor)
            require_settings(connection, read_only=self._own.read_only, databases=databases)
            if not self._own.read_only:
                make_table(cursor, self._ours)
            server_log = ServerLog(cursor, self._flavour)
            if position == self.begin():
                return server_log.end()
            if identity != tail.identity:
                return server_log.fail_over(position, tail, identity)
            server_log.check(position)
            if not self._own.read_only:
                check_watermarks(cursor, self._ours, tail)
            return position

    def _logged(self, cursor: Any) -> set[str]:
        """Return the databases whose changes the log must hold."""
        source = self._source
        tables = list_tables(cursor, source.tables, source.exclude, ours=(self._ours,))
        ours = set() if self._own.read_only else {self._ours.schema}
        return ours | {table.schema for table in tables}

    def _identify(self, connection: Any) -> SourceIdentity:
        self._flavour = "mariadb" if flavour(connection) == "mariadb" else "mysql"
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@lower_case_table_names")
            self._folds = cursor.fetchone()[0] == 1
            return SourceIdentity(self._flavour, server_name(cursor, self._flavour), 0, "")

    # -- reading -------------------------------------------------------------------------------

    def log_reader(
        self,
        position: SourcePosition,
        key: WatermarkKey,
        captures: Callable[[str], bool],
        prepared: Mapping[str, SourcePosition],
    ) -> BinlogReader:
        """See `Source.log_reader`."""
        begin = _binlog(position)
        self._learn_cascades()
        self._registry = WatermarkRegistry()
        far = begin.offset > OFFSET_MAX and bool(begin.gtids)
        stream = self._open(begin, key.incarnation, by_gtid=begin.by_gtid or far)
        least = replace(begin, by_gtid=begin.by_gtid or far)
        state = LogState(stream, make_executed(self._flavour, begin.gtids), least=least)
        tables = TableCache(self._role, self._natives, captures, self._key_configurations)
        rules = LogRules(
            goes_on=self._own.on_gap == "dump",
            holds_xa=self._own.xa == "hold",
            captures=captures,
            open_replay=lambda position: self._open_replay(position, f"{key.incarnation} replay"),
            children_of=self._cascades.children_of,
            images=lambda table: self._key_configurations(table).image,
            derives=self._derives,
            refuses=self._refuses,
            folds=self._folds,
        )
        rare = RareEvents(state, tables, self._registry, key=key, prepared=prepared, rules=rules)
        return BinlogReader(state, tables, rare, rules)

    def chunk_reader(self, key: WatermarkKey) -> RowChunkReader:
        """See `Source.chunk_reader`."""
        return RowChunkReader(
            self._watermarks(key),
            self._connect("chunks"),
            flavour=self._flavour,
            lock_timeout_s=self._settings.capture.lock_timeout_s,
            cascades=self._own.cascades,
            holds_xa=self._own.xa == "hold",
            on_point=self._on_point,
            key_configurations=self._key_configurations,
            copies=self._streams,
            access=self._copy_access(key),
        )

    def _copy_access(self, key: WatermarkKey) -> CopyAccess:
        def connect() -> Any:
            return self._connect("copies")

        def probes(token: str) -> ProbeWriters:
            return ProbeWriters(
                lambda: self._connect("probes", SESSION),
                key=key,
                database=self._own.watermark_database,
                token=token,
            )

        return CopyAccess(connect, None if self._own.read_only else probes)

    def watch(self, key: WatermarkKey) -> MysqlWatch:
        """See `Source.watch`."""
        return MysqlWatch(
            self._connect("catalog"),
            self._watermarks(key),
            flavour=self._flavour,
            settings=self._source,
            ours=(self._ours,),
            cascades=self._cascades,
            key_configurations=self._key_configurations,
        )

    def keep_copies(self, tokens: Collection[str]) -> None:
        """See `Source.keep_copies`."""
        self._streams.keep(tokens)

    def _watermarks(self, key: WatermarkKey) -> WatermarkWriter:
        connection = self._connect("watermarks", SESSION)
        if self._own.read_only:
            return RegistryWatermarks(connection, self._registry, flavour=self._flavour)
        database = self._own.watermark_database
        return TableWatermarks(connection, key=key, database=database)

    def _open_replay(self, position: MysqlPosition, name: str) -> BinlogStream:
        """Open the log once more, from where it has the rows of an XA transaction. Raises
        SourceLost."""
        if position.file not in self._ask("replay", log_files):
            raise SourceLost(
                f"the server purged {position.file}, which held rows of an XA transaction that"
                " committed later",
                hint="keep the log for longer (binlog_expire_logs_seconds)",
            )
        return self._open(position, name)

    def _open(self, position: MysqlPosition, name: str, *, by_gtid: bool = False) -> BinlogStream:
        ids, stream_name = self._server_ids, f"{self._settings.pipeline} {name}"
        server_id = ids.known(stream_name, self._term) or self._ask(
            "server id", lambda cursor: ids.find(cursor, stream_name, self._term)
        )
        stream = open_stream(
            self._source,
            position,
            flavour=self._flavour,
            server_id=server_id,
            application_name=f"{self._application} log",
            by_gtid=by_gtid,
        )
        stream.on_rival = partial(ids.rivals.add, server_id)
        stream.event_bytes_max = self._settings.capture.event_bytes_max
        return stream

    def _learn_cascades(self) -> None:
        """Learn the cascades before anything is read: the first look at the catalog comes later."""
        if self._own.cascades != "refuse":
            self._cascades.learn(self._ask("cascades", self._read_cascades))

    def _read_cascades(self, cursor: Any) -> Sequence[MysqlCatalogTable]:
        source = self._source
        tables = list_tables(cursor, source.tables, source.exclude, ours=(self._ours,))
        return read_tables(cursor, tables, flavour=self._flavour, cascades="redump")

    def _role(self, table: TableId) -> Role:
        if table == self._ours:
            return Role.OURS
        source = self._source
        chosen = is_chosen(table, source.tables, source.exclude)
        return Role.CHOSEN if chosen else Role.OTHER

    def _natives(self, table: TableId) -> Mapping[str, str]:
        if self._flavour != "mariadb":
            return {}
        return self._ask("types", lambda cursor: natives(cursor, [table])).get(table, {})

    def _derives(self, table: TableId) -> bool:
        return self._ask("types", lambda cursor: has_generated_columns(cursor, table))

    def _refuses(self, table: TableId) -> bool:
        refused = partial(
            is_refused,
            table=table,
            flavour=self._flavour,
            cascades=self._own.cascades,
            key_configurations=self._key_configurations,
        )
        return self._ask("catalog", refused)

    def _ask(self, role: str, question: Callable[[Any], _Answer]) -> _Answer:
        """Return what ``question`` reads over a cursor of a connection for ``role``."""
        with self._asking(role) as connection, connection.cursor() as cursor, querying():
            return question(cursor)

    def _asking(self, role: str) -> closing[Any]:
        """Return a connection that the session waits for: nothing else would notice that answers no
        longer come."""
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
        """End the connections of the session before: a thread of it may wait there for an answer
        that never comes."""
        for connection in self._opened.take():
            sock = connection._sock
            if sock is not None:
                end(sock.fileno())


def _binlog(position: SourcePosition) -> MysqlPosition:
    if not isinstance(position, MysqlPosition):
        raise SourceLost(f"{position} is no position of a binlog", hint=START_OVER)
    return position
