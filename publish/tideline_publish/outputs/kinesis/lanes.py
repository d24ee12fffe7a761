"""Orders records for requests that Kinesis may take in any order, and only in part.

PutRecords keeps no order among the records of a request, and less so where some of them fail: so a
request has no two records of one lane, and a lane's next record waits until the one before it is
taken. A lane is a partition key: its shard may change at any time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

REQUEST_RECORDS = 500


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record. ``hash_key`` puts it into a shard, whatever its partition key would say."""

    partition_key: str
    data: bytes
    hash_key: str | None = None

    @property
    def bytes(self) -> int:
        """The size that counts against the limits."""
        return len(self.partition_key) + len(self.data)


class Lanes:
    """The records that are not taken yet, in the order in which they were added."""

    def __init__(self, request_bytes_max: int) -> None:
        self._request_bytes_max = request_bytes_max
        self._lanes: dict[str, deque[OutgoingRecord]] = {}
        self._ready: deque[str] = deque()
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._lanes)

    @property
    def is_full(self) -> bool:
        """Return whether the next request would be as large as one can be."""
        return len(self._ready) >= REQUEST_RECORDS or self.bytes >= self._request_bytes_max

    def add(self, record: OutgoingRecord, lane: str | None = None) -> None:
        """Add ``record``, behind all of its lane: that of its partition key, without another."""
        name = lane or record.partition_key
        self.bytes += record.bytes
        if name in self._lanes:
            self._lanes[name].append(record)
        else:
            self._lanes[name] = deque([record])
            self._ready.append(name)

    def take(self) -> Sequence[tuple[str, OutgoingRecord]]:
        """Return the records of the next request, at least one, with their lanes: the first of each
        lane. They stay here until `settle` is called."""
        found: list[tuple[str, OutgoingRecord]] = []
        size = 0
        while self._ready and len(found) < REQUEST_RECORDS:
            record = self._lanes[self._ready[0]][0]
            if found and size + record.bytes > self._request_bytes_max:
                break
            size += record.bytes
            found.append((self._ready.popleft(), record))
        return found

    def settle(self, taken: Iterable[str], failed: Sequence[str]) -> None:
        """Drop the first records of the lanes ``taken``; those of ``failed`` are the next ones
        again."""
        for name in taken:
            lane = self._lanes[name]
            self.bytes -= lane.popleft().bytes
            if lane:
                self._ready.append(name)
            else:
                del self._lanes[name]
        self._ready.extendleft(reversed(failed))
