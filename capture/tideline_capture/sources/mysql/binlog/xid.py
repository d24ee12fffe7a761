"""The names of XA transactions, in events and in statements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Xid:
    """The name that a client gave to an XA transaction."""

    format_id: int
    gtrid: bytes
    bqual: bytes

    def __str__(self) -> str:
        """Return the name as the servers write it in the log: ``X'6131',X'',1``."""
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format_id}"


def read_xid(
    body: bytes, at: int, *, format_id: int, gtrid_bytes: int, bqual_bytes: int
) -> tuple[Xid, int]:
    """Return the name whose two parts are at ``at`` in an event, and where they end.

    IndexError when the event ends in them.
    """
    middle = at + gtrid_bytes
    end = middle + bqual_bytes
    if end > len(body):
        raise IndexError
    return Xid(format_id, body[at:middle], body[middle:end]), end
