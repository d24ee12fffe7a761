"""The retained part of a server's log: where a chain begins in it, and whether one can continue."""

from __future__ import annotations

from typing import Any

import pymysql
import structlog

from tideline.contract.errors import Misconfigured, SourceLost
from tideline.contract.manifest import Manifest
from tideline.contract.position import MysqlPosition, SourceIdentity
from tideline.contract.schema import TableId
from tideline_capture.sources.finding import START_OVER
from tideline_capture.sources.mysql.binlog.executed import make_executed
from tideline_capture.sources.mysql.binlog.gtid import MariadbGtids
from tideline_capture.sources.mysql.catalog.tables import Flavour
from tideline_capture.sources.mysql.watermarks import last_clock

SENT_EARLY_S = 10
"""The length of one wait until the server reports that it has what it already sent."""
_SENT_EARLY_WAITS = 2
"""Semi-synchronous replication holds a commit for 10 s by default when its replica is away."""
_PARSE_ERROR = 1064
_CLOCK_BACK_US = 60_000_000
"""The tolerance for a server's clock that is set back without its log being another one."""

log = structlog.get_logger("tideline.mysql")


class ServerLog:
    """The binlog of the server behind ``cursor``, whose errors pass through to the caller."""

    def __init__(self, cursor: Any, flavour: Flavour) -> None:
        self._cursor = cursor
        self._flavour = flavour

    def end(self) -> MysqlPosition:
        """Return where a chain begins: what was committed before is for the dumps. Raises
        Misconfigured when there is no log."""
        for statement in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
            try:
                self._cursor.execute(statement)
            except pymysql.Error as error:
                if error.args[0] != _PARSE_ERROR:
                    raise
            else:
                break
        row = self._cursor.fetchone()
        if row is None:
            raise Misconfigured(
                "the server writes no binary log", hint="set log_bin, and restart the server"
            )
        file, offset = str(row[0]), int(row[1])
        if self._flavour == "mariadb":
            return MysqlPosition(file, offset, self._gtids_at(file, offset))
        # Entries of the log that are not visible yet are not in the GTIDs: they and an offset never
        # match while anyone writes, and only the log itself can say which is which.
        gtids = self._gtids()
        if self._variable("gtid_mode") == "ON":
            return MysqlPosition("", 0, gtids, by_gtid=True)
        return MysqlPosition(file, offset)

    def check(self, position: MysqlPosition) -> None:
        """Raise SourceLost unless the log holds what comes behind ``position``, and the server has
        all that came before."""
        if position.by_gtid:
            self._check_gtids(position)
            return
        files = log_files(self._cursor)
        if position.file not in files:
            oldest = min(files, default="none")
            raise SourceLost(
                f"the server purged its log: the chain ends at {position}, the oldest file is"
                f" {oldest}; changes between them are lost",
                hint=f"keep the log for longer (binlog_expire_logs_seconds), then {START_OVER}",
            )
        if files[position.file] < position.offset or not self._holds(position):
            raise SourceLost(
                f"the server's log is not the one that it was: it ends before {position}",
                hint=f"was the server restored, or its log reset? {START_OVER}",
            )

    def fail_over(
        self, position: MysqlPosition, tail: Manifest, identity: SourceIdentity
    ) -> MysqlPosition:
        """Return where the chain of ``tail``, which ends at ``position``, continues by GTID in the
        log of this other server, ``identity``. Raises SourceLost unless it has all that the chain
        has."""
        what = f"this is another server, {identity.system_id}; the chain is of"
        if identity.kind != tail.identity.kind:
            raise SourceLost(
                f"{what} {tail.identity.kind} {tail.identity.system_id}",
                hint=f"point source.url at the right server, or {START_OVER}",
            )
        what = f"{what} {tail.identity.system_id}"
        if not position.gtids:
            raise SourceLost(
                f"{what}, and its position is a file's: files of another server mean nothing",
                hint=f"point source.url at the right server, or {START_OVER}",
            )
        if tail.state is not None and tail.state.prepared:
            raise SourceLost(
                f"{what}, where the rows of prepared XA transactions lie elsewhere", hint=START_OVER
            )
        if not self._covers(position.gtids):
            raise SourceLost(
                f"{what}, and it does not have all of {position.gtids}: it is no replica, or lags",
                hint=f"wait until it has caught up, point source.url at a replica, or {START_OVER}",
            )
        log.warning("another server: the log is followed by GTID", server=identity.system_id)
        return MysqlPosition("", 0, position.gtids, by_gtid=True)

    def _check_gtids(self, position: MysqlPosition) -> None:
        """Raise SourceLost unless the log continues these GTIDs. MySQL says which transactions its
        files no longer hold; MariaDB only when it is asked for the log."""
        if not self._covers(position.gtids):
            raise SourceLost(
                f"the server's log is not the one that it was: it does not have {position.gtids}",
                hint=f"was the server restored, or its log reset? {START_OVER}",
            )
        if self._flavour == "mysql":
            purged = self._variable("gtid_purged")
            if purged and not make_executed(self._flavour, position.gtids).covers(purged):
                raise SourceLost(
                    f"the server purged its log: the chain ends at {position}, and {purged} is no"
                    " longer held; changes between them are lost",
                    hint=f"keep the log for longer (binlog_expire_logs_seconds), then {START_OVER}",
                )

    def _gtids(self) -> str:
        return self._variable("gtid_binlog_pos" if self._flavour == "mariadb" else "gtid_executed")

    def _variable(self, name: str) -> str:
        """Return a global variable's text; line breaks in a set of GTIDs mean nothing."""
        self._cursor.execute(f"SELECT @@GLOBAL.{name}")
        return str(self._cursor.fetchone()[0] or "").replace("\n", "")

    def _gtids_at(self, file: str, offset: int) -> str:
        """Return MariaDB's position by GTID at an offset of one of its files; empty where it has
        none."""
        self._cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, offset))
        return str(self._cursor.fetchone()[0] or "")

    def _covers(self, gtids: str) -> bool:
        """Return whether the server's log, including its purged part, has everything in ``gtids``.
        MySQL sends a transaction before it reports that it has it."""
        if gtids and self._flavour == "mysql":
            return any(self._has_executed(gtids) for _ in range(_SENT_EARLY_WAITS))
        return not gtids or make_executed(self._flavour, self._gtids()).covers(gtids)

    def _has_executed(self, gtids: str) -> bool:
        wait = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"
        self._cursor.execute(wait, (gtids, SENT_EARLY_S))
        return not self._cursor.fetchone()[0]

    def _holds(self, position: MysqlPosition) -> bool:
        """Return whether the server's file has at that offset what the chain had there. MariaDB's
        own name for itself can also be another server's, with another history."""
        if self._flavour == "mysql" or not position.gtids:
            return self._covers(position.gtids)
        there = MariadbGtids.parse(self._gtids_at(position.file, position.offset))
        return there == MariadbGtids.parse(position.gtids)


def log_files(cursor: Any) -> dict[str, int]:
    """Return the server's files of the log, and how many bytes each has."""
    cursor.execute("SHOW BINARY LOGS")
    return {str(row[0]): int(row[1]) for row in cursor.fetchall()}


def check_watermarks(cursor: Any, table: TableId, tail: Manifest) -> None:
    """Raise SourceLost where the watermark table, which is written before the log is read, is
    behind the chain: the server was restored from a copy, and its log continues differently from
    there, under the old names, offsets and GTIDs."""
    written = last_clock(cursor, table, tail.incarnation)
    # A chain from before clocks were bounded may have read a time that never came.
    read = tail.through_us
    if written is None or read is None or written >= read - _CLOCK_BACK_US:
        return
    raise SourceLost(
        f"the chain has read watermarks that were written {(read - written) / 1e6:.0f} s after the"
        f" last one that {table} has: the log is not the one that it was",
        hint="was the source restored from a backup? What came between is in the warehouse"
        f" only: {START_OVER}. If not, its clock was set back, or someone else wrote to that"
        f" table: remove the row of incarnation {tail.incarnation} from it",
    )
