"""Reading an event's body from front to back, and never beyond its end."""

from __future__ import annotations

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.binlog.event_body import length_encoded


class BodyReader:
    """A cursor over ``data``; raises CorruptData, naming ``what`` it is, when the data ends too
    early."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self.what = what

    @property
    def left(self) -> int:
        """The number of bytes not yet taken."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        if size > self.left:
            raise self._ends_early()
        self._at += size
        return self._data[self._at - size : self._at]

    def uint(self, size: int) -> int:
        """Return the next ``size`` bytes as a little-endian number."""
        return int.from_bytes(self.take(size), "little")

    def lenenc(self) -> int:
        """Return a length-encoded number."""
        try:
            value, self._at = length_encoded(self._data, self._at)
        except IndexError:
            raise self._ends_early() from None
        return value

    def block(self) -> bytes:
        """Return as many bytes as the length-encoded number before them says."""
        return self.take(self.lenenc())

    def finish(self) -> None:
        """Raise CorruptData when bytes are left."""
        if self.left:
            raise CorruptData(f"{self.left} bytes too many: {self.what}")

    def _ends_early(self) -> CorruptData:
        return CorruptData(f"ends early at byte {self._at} of {len(self._data)}: {self.what}")
