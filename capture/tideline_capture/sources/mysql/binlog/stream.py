"""One replication connection: opened by mysql-replication, read by our own framing.

The library logs in through our `connect`, negotiates checksums and heartbeats, registers and sends
the dump command; from then on its socket is ours. Its settings are never logged (they hold the
password), and its reconnect, which restarts from its first position, is never reached. Three
private names are used for that; a test fails when they change. The alternative then is PyMySQL
alone, with `_ask_by_gtid`; it already serves where the library cannot write a GTID set with tags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymysql
from pymysqlreplication import BinLogStreamReader

from tideline.contract.errors import InvariantBroken, SourceLost
from tideline.contract.position import MysqlPosition
from tideline.settings import SourceSettings
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.decoding import EVENT_BYTES_MAX
from tideline_capture.sources.mysql.binlog.framing import EventBuffer
from tideline_capture.sources.mysql.binlog.gtid import GtidSet
from tideline_capture.sources.mysql.binlog.unpack import PayloadStream
from tideline_capture.sources.mysql.connect import connect, query_failed

HEARTBEAT_S = 5
CONNECT = "_BinLogStreamReader__connect_to_stream"
CONNECTION = "_stream_connection"
SOCKET = "_sock"
_FILE_START = 4
OFFSET_MAX = 2**32 - 1
_DUMP_BY_GTID = 0x1E
_THROUGH_GTID = 0x04
_CHECKSUM = "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'"
"""Sent even when the server writes none at the moment: it can be switched on while we read."""
_BY_GTID = (
    "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0"
)


class Accepted:
    """The first events of a buffer, which wait to be taken: how many, where they start and stop
    (checksums included), and the place of the last of them that ends a transaction, or -1."""

    def __init__(self) -> None:
        self.count = 0
        self.last_end = -1
        self._starts: list[Int64Array] = []
        self._stops: list[Int64Array] = []

    @property
    def bytes(self) -> int:
        return int(self._stops[-1][-1]) if self.count else 0

    def add(self, starts: Int64Array, stops: Int64Array, last_end: int) -> None:
        """Add more of them; ``last_end`` is a place among these."""
        if last_end >= 0:
            self.last_end = self.count + last_end
        self.count += len(starts)
        self._starts.append(starts)
        self._stops.append(stops)

    def take(self, count: int) -> tuple[Int64Array, Int64Array]:
        """Remove the first ``count`` of them; the others then begin where these did."""
        starts, stops = np.concatenate(self._starts), np.concatenate(self._stops)
        cut, rest = stops[count - 1], self.count - count
        self._starts, self._stops = [starts[count:] - cut], [stops[count:] - cut]
        self.count, self.last_end = rest, -1
        return starts[:count], stops[:count]


class BinlogStream:
    """An open stream.

    ``file`` and ``at`` are where its next event begins, ``checksum_bytes`` the number of bytes
    behind every event; all follow the events that are read. ``awaits_description``: the next event
    describes the file, and whether its events have checksums. An event of more than
    ``event_bytes_max`` is a stop.
    """

    def __init__(
        self,
        buffer: EventBuffer,
        position: MysqlPosition,
        *,
        end: Callable[[], None] | None = None,
        checksum: int = 0,
        awaits_description: bool = False,
        event_bytes_max: int = EVENT_BYTES_MAX,
    ) -> None:
        self.awaits_description = awaits_description
        self.event_bytes_max = event_bytes_max
        self.file = position.file
        self.at = position.offset
        self.checksum_bytes = checksum
        self.payload: PayloadStream | None = None
        """The compressed transaction that is being expanded into the buffer."""
        self.accepted = Accepted()
        self.on_rival: Callable[[], None] = lambda: None
        """Called when the server ends it because another client has its server id."""
        self._end = end
        self.buffer = buffer

    def close(self) -> None:
        """End the session at once: the server sees it with its next event."""
        if self._end is not None:
            self._end()


def open_stream(
    source: SourceSettings,
    position: MysqlPosition,
    *,
    flavour: str,
    server_id: int,
    application_name: str,
    by_gtid: bool = False,
) -> BinlogStream:
    """Ask for the log from ``position`` on, by its file and offset or by its GTIDs.

    ``server_id`` must be unique: the server ends the older of two streams with one id.
    """
    statements: dict[str, tuple[str, ...]] = {_CHECKSUM: ()}
    arguments: dict[str, Any] = {"log_file": position.file, "log_pos": position.offset}
    if by_gtid and flavour == "mariadb":
        statements[_BY_GTID] = (position.gtids,)
        arguments = {"log_file": "", "log_pos": _FILE_START}
    elif by_gtid:
        connection = _prepared(source, application_name, statements)
        _ask_by_gtid(connection, server_id, GtidSet.parse(position.gtids))
        return over(connection, position)
    elif position.offset > OFFSET_MAX:
        raise SourceLost(
            f"the log cannot be asked for from {position} on: an offset has 32 bits there",
            hint="switch GTIDs on: they name such places",
        )
    reader = BinLogStreamReader(
        connection_settings={},
        server_id=server_id,
        resume_stream=True,
        blocking=True,
        slave_heartbeat=HEARTBEAT_S,
        report_slave="tideline",
        enable_logging=False,
        pymysql_wrapper=lambda **_: _prepared(source, application_name, statements),
        **arguments,
    )
    try:
        getattr(reader, CONNECT)()
    except pymysql.Error as error:
        raise query_failed(error) from None
    except AttributeError:
        raise InvariantBroken(
            "mysql-replication has no longer the names that this version is built on",
            hint="install mysql-replication as constraints.txt pins it",
        ) from None
    return over(getattr(reader, CONNECTION), position)


def over(connection: Any, position: MysqlPosition) -> BinlogStream:
    """Return the stream that the server sends over ``connection``."""
    sock = getattr(connection, SOCKET)
    sock.setblocking(False)
    end = connection._force_close
    return BinlogStream(EventBuffer(sock), position, end=end, awaits_description=True)


def _prepared(
    source: SourceSettings, application_name: str, statements: Mapping[str, tuple[str, ...]]
) -> Any:
    connection = connect(source, application_name=application_name)
    try:
        with connection.cursor() as cursor:
            for statement, values in statements.items():
                cursor.execute(statement, values)
    except pymysql.Error as error:
        connection.close()
        raise query_failed(error) from None
    return connection


def _ask_by_gtid(connection: Any, server_id: int, executed: GtidSet) -> None:
    """Send COM_BINLOG_DUMP_GTID, for everything that is not in ``executed``."""
    with connection.cursor() as cursor:
        cursor.execute("SET @master_heartbeat_period = %s", (HEARTBEAT_S * 1_000_000_000,))
    encoded = executed.encode()
    body = struct.pack("<BHIIQI", _DUMP_BY_GTID, _THROUGH_GTID, server_id, 0, 4, len(encoded))
    command = body + encoded
    connection._write_bytes(len(command).to_bytes(3, "little") + b"\0" + command)
    connection._next_seq_id = 1
