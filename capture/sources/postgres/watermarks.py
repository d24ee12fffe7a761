"""Our marks in the log: transactional logical messages.

They need no table, no publication and no grant, and are ordered with the commits around them,
which is what makes "before the mark" and "after the mark" mean something. Their commit waits for
the disk (``synchronous_commit = on``): otherwise a mark shows up 200 ms late.
"""

from __future__ import annotations

from typing import Any

from capture.core.events import Mark, MarkKind, Snapshot

PREFIX = "tideline"

_EMIT = """
SELECT pg_catalog.pg_logical_emit_message(true, %s,
  %s || (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint)
"""


def write_mark(cursor: Any, incarnation: str, kind: MarkKind, token: str) -> None:
    """Write a mark in a transaction of its own (the connection is in autocommit)."""
    cursor.execute(_EMIT, (PREFIX, f"{incarnation} {kind.value} {token} "))


def parse_mark(prefix: str, content: bytes, incarnation: str) -> Mark | None:
    """The mark in a logical message, if it is one of this incarnation."""
    if prefix != PREFIX:
        return None
    words = content.split(b" ")
    if len(words) != 4 or words[0] != incarnation.encode():
        return None
    return Mark(MarkKind(words[1].decode()), words[2].decode(), int(words[3]))


def take_snapshot(cursor: Any) -> Snapshot:
    """Which transactions a read on this connection sees now."""
    cursor.execute("SELECT pg_catalog.pg_current_snapshot()::text")
    xmin, xmax, running = cursor.fetchone()[0].split(":")
    return Snapshot(int(xmin), int(xmax), tuple(int(xid) for xid in running.split(",") if xid))
