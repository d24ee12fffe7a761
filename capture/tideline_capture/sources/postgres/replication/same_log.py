"""The test that the server's log is the one that the chain was read from.

A server that was restored from a copy of its disk has the same name, timeline and slot as before,
and a log that continues differently from where the copy was made. Once that log is longer than the
chain knows, positions prove nothing. But the slot of the copy stands further back, and it sends
other transactions up to the chain's position: none ends there.
"""

from __future__ import annotations

from typing import Any

from tideline_capture.sources.postgres.names import quoted

_ENDS = """
SELECT count(*) > 0 FROM pg_catalog.pg_logical_slot_peek_binary_changes(
  %s, %s::pg_lsn, NULL, 'proto_version', '1', 'publication_names', %s, 'messages', 'true')
WHERE get_byte(data, 0) = 67 AND substring(data FROM 11 FOR 8) = %s
"""
"""pgoutput's Commit: 'C', flags, the commit's LSN and, big-endian, the transaction's end."""


def a_transaction_ends_at(cursor: Any, slot: str, publication: str, end_lsn: int) -> bool:
    """Return whether a transaction that ``slot`` has yet to confirm ends at ``end_lsn``, which lies
    behind the confirmed position. The slot must be free. Takes as long as decoding up to there;
    nothing is consumed."""
    text = f"{end_lsn >> 32:X}/{end_lsn & 0xFFFFFFFF:X}"
    cursor.execute(_ENDS, (slot, text, quoted(publication), end_lsn.to_bytes(8, "big")))
    return bool(cursor.fetchone()[0])
