"""Our watermarks in the log: transactional logical messages.

They need no table, no publication and no grant, and are ordered with the commits around them, which
gives "before the watermark" and "after the watermark" a meaning. Their commit waits for the disk
(``synchronous_commit = on``): otherwise a watermark shows up 200 ms late.

Every role may write such messages, and a monitoring role sees ours while they are written: the
signature is what makes a watermark ours (`watermark_key`).
"""

from __future__ import annotations

from typing import Any

from tideline_capture.core.events import UnknownWatermark, Watermark, WatermarkKind
from tideline_capture.core.facts import Snapshot
from tideline_capture.sources.watermark_key import WatermarkKey

PREFIX = "tideline"

_CLOCK = "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint"
_EMIT = "SELECT pg_catalog.pg_logical_emit_message(true, %s, %s)"
_TIMED = (WatermarkKind.HIGH, WatermarkKind.HEARTBEAT)
_WORDS = 4
"""The words behind the incarnation."""
_CONTENT_BYTES_MAX = 256


def write_watermark(cursor: Any, key: WatermarkKey, kind: WatermarkKind, token: str) -> None:
    """Write a watermark in its own transaction (the connection is in autocommit)."""
    clock_us = 0
    if kind in _TIMED:
        # The clock first: all that was committed until then is before the watermark.
        clock_us = read_clock(cursor)
    signed = f"{kind.value} {token} {clock_us} {key.sign(kind, token, clock_us)}"
    cursor.execute(_EMIT, (PREFIX, f"{key.incarnation} {signed}"))


def read_clock(cursor: Any) -> int:
    """Return the server's clock, µs since 1970 UTC."""
    cursor.execute(_CLOCK)
    return int(cursor.fetchone()[0])


def parse_watermark(
    prefix: str, content: bytes, key: WatermarkKey
) -> Watermark | UnknownWatermark | None:
    """Return the meaning of a logical message: a watermark of this session, a message that imitates
    one of this chain, or (None) nothing of ours. Never raises, whatever is in it."""
    if prefix != PREFIX or not content.startswith(f"{key.incarnation} ".encode()):
        return None
    if len(content) > _CONTENT_BYTES_MAX:
        return UnknownWatermark()
    _, *words = content.decode("ascii", "replace").split(" ")
    return (key.opened(*words) if len(words) == _WORDS else None) or UnknownWatermark()


PREFIX_AT = 10
"""The offset in a message of pgoutput: behind its kind, a byte of flags and its LSN."""
_LENGTH_BYTES = 4
_OURS = PREFIX.encode() + b"\0"
_LEAST_BYTES = PREFIX_AT + 1 + _LENGTH_BYTES
"""The length of a message whose prefix and content are empty."""


def is_another(payload: bytes) -> bool:
    """Return whether a logical message, as pgoutput sends it, has a prefix other than ours.

    Its content may be a gigabyte, of which nothing is read, or empty. False for bytes that are no
    message: parsing refuses them.
    """
    return len(payload) >= _LEAST_BYTES and not payload.startswith(_OURS, PREFIX_AT)


def shortened(payload: bytes) -> bytes:
    """Return a message with our prefix, cut behind the length of a watermark: it stays strange."""
    at = PREFIX_AT + len(_OURS) + _LENGTH_BYTES
    content = payload[at : at + _CONTENT_BYTES_MAX + 1]
    if len(payload) == at + len(content):
        return payload
    return payload[: at - _LENGTH_BYTES] + len(content).to_bytes(_LENGTH_BYTES, "big") + content


def take_snapshot(cursor: Any) -> Snapshot:
    """Return the transactions that a read on this connection sees now."""
    cursor.execute("SELECT pg_catalog.pg_current_snapshot()::text")
    xmin, xmax, running = cursor.fetchone()[0].split(":")
    return Snapshot(int(xmin), int(xmax), tuple(int(xid) for xid in running.split(",") if xid))
