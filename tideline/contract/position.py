"""The position to which a source's log has been read, and the server that the log belongs to."""

from __future__ import annotations

import re

import msgspec

from tideline.contract.errors import CorruptData

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


class PostgresPosition(msgspec.Struct, frozen=True, tag="postgres", order=True):
    """The end of the last transaction that is contained, as PostgreSQL counts it.

    ``end_lsn`` is ``Commit.end_lsn`` of the logical replication protocol: a stream that starts
    there does not send that transaction again (``commit_lsn`` would).
    """

    end_lsn: int

    @property
    def portable(self) -> bool:
        """Return whether the position can be found in the log of another server."""
        return False

    def __str__(self) -> str:
        return format_lsn(self.end_lsn)


class MysqlPosition(msgspec.Struct, frozen=True, tag="mysql"):
    """The end of the last transaction that is contained, in a binlog of MySQL or MariaDB.

    ``offset`` is where the next event begins in ``file``: 64 bits, although the log's own field has
    32. ``gtids`` gives the same position in a form that holds on other servers too: MySQL's set of
    executed GTIDs, MariaDB's last GTID of each domain; empty when the server has none. File names
    end in a number that grows: only that and ``offset`` are an order, and only on one server.

    ``by_gtid``: the log is to be found by ``gtids`` alone. After a failover, and where a server
    cannot say both at one moment, there may be transactions behind ``offset`` that are contained,
    or before it some that are not; while ``file`` is empty there is no position in a file yet.
    """

    file: str
    offset: int
    gtids: str = ""
    by_gtid: bool = False

    @property
    def portable(self) -> bool:
        """Return whether the position can be found in the log of another server."""
        return bool(self.file and self.gtids)

    @property
    def order(self) -> tuple[int, int]:
        """Return a sort key for positions of one server; a position before everything is the
        least."""
        number = self.file.rpartition(".")[2]
        return (int(number) if number.isdecimal() else 0, self.offset)

    def __str__(self) -> str:
        gtids = f" ({self.gtids})" if self.gtids else ""
        return f"{self.file}:{self.offset}{gtids}" if self.file else gtids[1:] or "the beginning"


SourcePosition = PostgresPosition | MysqlPosition
"""The union of all sources' positions; a tagged union in documents."""


def may_follow(position: SourcePosition, before: SourcePosition) -> bool:
    """Return whether ``position``, of the same server, is not older than ``before``."""
    if isinstance(position, PostgresPosition) and isinstance(before, PostgresPosition):
        return position >= before
    if isinstance(position, MysqlPosition) and isinstance(before, MysqlPosition):
        return position.order >= before.order
    return False


class SourceIdentity(msgspec.Struct, frozen=True):
    """The server (and the slot on it) that positions are valid on.

    ``kind`` is ``postgres``, ``mysql`` or ``mariadb``. ``system_id`` is the server's own:
    PostgreSQL's system identifier, MySQL's ``server_uuid``, MariaDB's ``server_uid``. ``timeline``
    and ``database`` are PostgreSQL's; 0 and empty elsewhere, where a log covers all databases.
    """

    kind: str
    system_id: str
    timeline: int
    database: str

    def __str__(self) -> str:
        if not self.database:
            return f"{self.kind} {self.system_id}"
        return f"{self.system_id}, timeline {self.timeline}, database {self.database}"


def format_lsn(lsn: int) -> str:
    """Format an LSN as PostgreSQL does (``16/B374D848``)."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Parse PostgreSQL's text of an LSN; CorruptData for a text that is none."""
    if not _LSN.fullmatch(text):
        raise CorruptData(f"not an LSN: {text!r}")
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
