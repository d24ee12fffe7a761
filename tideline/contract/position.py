"""Where a source's log has been read to, and which server that log belongs to."""

from __future__ import annotations

import msgspec


class PostgresPosition(msgspec.Struct, frozen=True, tag="postgres", order=True):
    """The end of the last transaction that is contained, as PostgreSQL counts it.

    ``end_lsn`` is ``Commit.end_lsn`` of the logical replication protocol: a stream that starts
    there does not send that transaction again (``commit_lsn`` would).
    """

    end_lsn: int

    def __str__(self) -> str:
        return format_lsn(self.end_lsn)


SourcePosition = PostgresPosition
"""The union of all sources' positions; a tagged union in documents."""


class SourceIdentity(msgspec.Struct, frozen=True):
    """The server (and the slot on it) that positions are valid on.

    ``system_id`` is the server's own (PostgreSQL's system identifier), ``timeline`` its timeline,
    ``database`` the database that is read.
    """

    kind: str
    system_id: str
    timeline: int
    database: str


def format_lsn(lsn: int) -> str:
    """PostgreSQL's text of an LSN (``16/B374D848``)."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """The number behind PostgreSQL's text of an LSN."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
