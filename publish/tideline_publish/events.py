"""Change events, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tideline.contract.publishing import ChainPosition

TRUNCATED = "t"
"""The operation of an event that removes all rows of a table; the others are those of parts."""


Headers = tuple[tuple[str, bytes], ...]
"""Pairs of name and value, in their order."""


class ChangeEvent(msgspec.Struct, frozen=True, gc=False):
    """A change, encoded.

    ``seq`` is its sequence, ``part`` counts the events of one change from 0: a delete is followed
    by its tombstone, where the form has them, and an update that changed the key is the delete of
    the row at the old key and then the update. Events are ordered by (``seq``, ``part``), and no
    two have the same. ``key`` is None for an event of a whole table, and for a row of a table
    without a key. ``value`` is None for a tombstone. ``ts_us``: when the transaction ``tx``
    committed, by the source's clock, µs since 1970 UTC; of a row that a dump read, when it was
    read. ``object_key`` is the object in the store that has the row, at ``seq``; "" for an event
    without one. ``route`` is the topic or stream that it goes to, whatever its table; "" for an
    event that goes by its table. Only events with a route have ``headers``, and a key and value
    that may be any bytes.
    """

    seq: int
    part: int
    table: str
    op: str
    tx: int
    ts_us: int
    key: bytes | None
    value: bytes | None
    object_key: str = ""
    route: str = ""
    headers: Headers = ()

    @property
    def size(self) -> int:
        """The bytes of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        if self.headers:
            size += sum(len(name) + len(value) for name, value in self.headers)
        return size


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events in order, and the position behind them; ``whole``: it is the end of a transaction."""

    events: Sequence[ChangeEvent]
    position: ChainPosition
    whole: bool
