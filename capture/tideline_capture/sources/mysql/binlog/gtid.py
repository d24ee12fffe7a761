"""Sets of GTIDs: executed by a server, or passed by a reader.

MySQL's are sets proper: per server uuid and tag (8.3 and later) any numbers may be in it, kept as
intervals. MariaDB's are points: the last GTID of each domain, with all before it in the set too.
Texts are the servers' own. A set here only grows by additions; operations between two sets make new
ones.
"""

from __future__ import annotations

import re
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.binlog.event_body import trailing_ones

NUMBER_MAX = 2**63 - 2
"""MySQL's GNO_END, less one."""

_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"(\d{1,19})(?:\s*-\s*(\d{1,19}))?")
_MARIADB = re.compile(r"(\d{1,10})-(\d{1,10})-(\d{1,20})")
_TAGGED = 1

Key = tuple[bytes, str]
"""A server's uuid as 16 bytes, and the tag or ''. Their order is that of MySQL's texts."""


class GtidSet:
    """A set of MySQL's GTIDs. Not safe to share between threads while it grows."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        # Per key the ends of its intervals, half open, in one ascending list:
        # start, end, start, end … with no two intervals touching.
        self._bounds: dict[Key, list[int]] = {}

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Return the set that ``text`` (``uuid:1-5:7:tag:1-3, uuid:…``) names.

        As in MySQL, case, spaces and the order of anything do not matter. CorruptData for a text
        that is none.
        """
        made = cls()
        for part in filter(None, (part.strip() for part in text.split(","))):
            head, *fields = (field.strip() for field in part.split(":"))
            source, tag = _source(head, text), ""
            if not fields:
                raise CorruptData(f"not a GTID set: {text!r}")
            for one in fields:
                if interval := _INTERVAL.fullmatch(one):
                    first = int(interval[1])
                    made._add_range((source, tag), first, int(interval[2] or first) + 1)
                else:
                    tag = _tag(one)
        return made

    @classmethod
    def decode(cls, encoded: bytes) -> GtidSet:
        """Return the set in the form that `encode` gives and PREVIOUS_GTIDS events hold."""
        made = cls()
        try:
            at = made._decode(encoded)
        except IndexError:
            at = -1
        if at != len(encoded):
            raise CorruptData("an encoded GTID set is broken")
        return made

    def __str__(self) -> str:
        """Return MySQL's own text: ordered, intervals joined, one uuid's tags after one another."""
        texts: dict[bytes, str] = {}
        for source, tag in sorted(self._bounds):
            text = texts.get(source) or str(uuid.UUID(bytes=source))
            text += f":{tag}" if tag else ""
            for start, end in _pairs(self._bounds[source, tag]):
                text += f":{start}" if end == start + 1 else f":{start}-{end - 1}"
            texts[source] = text
        return ",\n".join(texts.values())

    def __repr__(self) -> str:
        return f"GtidSet.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __len__(self) -> int:
        """Return how many GTIDs are in it."""
        return sum(end - start for bounds in self._bounds.values() for start, end in _pairs(bounds))

    def copy(self) -> GtidSet:
        made = GtidSet()
        made._bounds = {key: list(bounds) for key, bounds in self._bounds.items()}
        return made

    def add(self, source: uuid.UUID, tag: str, number: int) -> None:
        """Add one GTID."""
        bounds = self._bounds.get((source.bytes, tag))
        if bounds is not None and bounds[-1] == number:
            bounds[-1] = number + 1
        else:
            self._add_range((source.bytes, tag), number, number + 1)

    def add_many(self, source: uuid.UUID, tag: str, numbers: npt.NDArray[np.int64]) -> None:
        """Add many GTIDs of one server and tag, in any order."""
        if not len(numbers):
            return
        ordered = np.unique(numbers)
        breaks = np.flatnonzero(np.diff(ordered) != 1) + 1
        for run in np.split(ordered, breaks):
            self._add_range((source.bytes, tag), int(run[0]), int(run[-1]) + 1)

    def update(self, other: GtidSet) -> None:
        """Add every GTID of ``other``."""
        for key, bounds in other._bounds.items():
            for start, end in _pairs(bounds):
                self._add_range(key, start, end)

    def holds(self, source: uuid.UUID, tag: str, number: int) -> bool:
        """Return whether this GTID is in the set."""
        return bisect_right(self._bounds.get((source.bytes, tag), ()), number) % 2 == 1

    def contains(self, other: GtidSet) -> bool:
        """Return whether every GTID of ``other`` is in this set."""
        return not other.subtract(self)

    def subtract(self, other: GtidSet) -> GtidSet:
        """Return the GTIDs of this set that are not in ``other``."""
        made = GtidSet()
        for key, bounds in self._bounds.items():
            rest = _without(bounds, other._bounds.get(key, []))
            if rest:
                made._bounds[key] = rest
        return made

    def encode(self) -> bytes:
        """Encode the set as COM_BINLOG_DUMP_GTID sends it; with a tag in the set, in the form of
        MySQL 8.3.

        Layout: ``Gtid_set::encode`` in MySQL's ``sql/rpl_gtid_set.cc``.
        """
        tagged = any(tag for _, tag in self._bounds)
        count = len(self._bounds)
        head = _TAGGED << 56 | count << 8 | _TAGGED if tagged else count
        parts = [head.to_bytes(8, "little")]
        for source, tag in sorted(self._bounds):
            bounds = self._bounds[source, tag]
            parts.append(source)
            if tagged:
                parts.append(bytes((len(tag) << 1,)) + tag.encode())
            parts.append((len(bounds) // 2).to_bytes(8, "little"))
            parts.append(np.array(bounds, dtype="<i8").tobytes())
        return b"".join(parts)

    def _decode(self, encoded: bytes) -> int:
        """Add what is encoded; return where it ended."""
        head = _u64(encoded, 0)
        tagged = head >> 56 == _TAGGED
        if head >> 56 > _TAGGED:
            raise CorruptData(f"an encoded GTID set of an unknown form: {head >> 56}")
        count = head >> 8 & (1 << 48) - 1 if tagged else head
        at = 8
        for _ in range(count):
            source, at, tag = encoded[at : at + 16], at + 16, ""
            if tagged:
                length, at = trailing_ones(encoded, at)
                tag, at = encoded[at : at + length].decode("ascii", "replace"), at + length
                tag = _tag(tag) if tag else ""
            intervals, at = _u64(encoded, at), at + 8
            for _ in range(intervals):
                self._add_range((source, tag), _u64(encoded, at), _u64(encoded, at + 8))
                at += 16
        return at

    def _add_range(self, key: Key, start: int, end: int) -> None:
        """Add the numbers from ``start`` to before ``end``."""
        if not 0 < start < end <= NUMBER_MAX + 1:
            raise CorruptData(f"not numbers of GTIDs: {start} to {end - 1}")
        bounds = self._bounds.setdefault(key, [])
        low, high = bisect_left(bounds, start), bisect_right(bounds, end)
        inner = ([start] if low % 2 == 0 else []) + ([end] if high % 2 == 0 else [])
        bounds[low:high] = inner


class MariadbGtids:
    """The last GTID of each domain: a position in MariaDB's log."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    @classmethod
    def parse(cls, text: str) -> MariadbGtids:
        """Return the position that ``text`` (``domain-server-sequence,…``) names.

        CorruptData for another text, and where a domain is named twice: that is no position.
        """
        made = cls()
        for part in filter(None, (part.strip() for part in text.split(","))):
            match = _MARIADB.fullmatch(part)
            if match is None or int(match[1]) in made._last:
                raise CorruptData(f"not a position in MariaDB's GTIDs: {text!r}")
            made.advance(int(match[1]), int(match[2]), int(match[3]))
        return made

    def __str__(self) -> str:
        """Return the text of ``@slave_connect_state``, by domain."""
        return ",".join(
            f"{domain}-{server}-{sequence}"
            for domain, (server, sequence) in sorted(self._last.items())
        )

    def __repr__(self) -> str:
        return f"MariadbGtids.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MariadbGtids) and self._last == other._last

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._last)

    def copy(self) -> MariadbGtids:
        made = MariadbGtids()
        made._last = dict(self._last)
        return made

    def advance(self, domain: int, server: int, sequence: int) -> None:
        """Record that a transaction with this GTID has been read; it is now the last of its domain.

        Without ``gtid_strict_mode`` a sequence may be lower than the one before it, and the server
        that numbered it may change: the log's order is what counts.
        """
        self._last[domain] = (server, sequence)

    def covers(self, other: MariadbGtids) -> bool:
        """Return whether no domain of ``other`` is further than here, by sequence."""
        return all(
            domain in self._last and sequence <= self._last[domain][1]
            for domain, (_, sequence) in other._last.items()
        )


def _source(text: str, whole: str) -> bytes:
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        raise CorruptData(f"not a GTID set: {whole!r}") from None


def _tag(text: str) -> str:
    tag = text.lower()
    if not _TAG.fullmatch(tag):
        raise CorruptData(f"not a tag of a GTID: {text!r}")
    return tag


def _pairs(bounds: list[int]) -> Iterator[tuple[int, int]]:
    return zip(bounds[::2], bounds[1::2], strict=True)


def _without(bounds: list[int], removed: Iterable[int]) -> list[int]:
    """Return the intervals of ``bounds`` less those of ``removed``."""
    taken = list(removed)
    rest: list[int] = []
    for start, end in _pairs(bounds):
        low, high = bisect_right(taken, start), bisect_left(taken, end)
        inner = taken[low:high]
        kept = ([] if low % 2 else [start]) + inner + ([] if high % 2 else [end])
        rest += kept
    return rest


def _u64(data: bytes, at: int) -> int:
    if at + 8 > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + 8], "little")
