"""Reading the body of an event: integers of varying length, and bodies that end too early."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tideline.contract.errors import CorruptData

P = ParamSpec("P")
T = TypeVar("T")

_WIDE = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""Bytes that follow a first byte of 0xFC to 0xFE."""


def reads(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Turn an exception from reading past a body's end into CorruptData that names the event."""

    def decorate(parse: Callable[P, T]) -> Callable[P, T]:
        @wraps(parse)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return parse(*args, **kwargs)
            except (struct.error, IndexError, UnicodeDecodeError):
                raise CorruptData(f"a {name} event of the binlog is broken") from None

        return checked

    return decorate


def length_encoded(data: bytes, at: int) -> tuple[int, int]:
    """Return the client protocol's integer at ``at``, and where it ends.

    Up to 250 it is one byte. IndexError when the data ends in it, or when it is none (251 means
    NULL, 255 an error).
    """
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    width = _WIDE.get(first)
    if width is None:
        raise IndexError
    return _little(data, at + 1, width), at + 1 + width


def trailing_ones(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned integer of MySQL's serialization library at ``at``, and where it ends.

    As many one-bits as the first byte ends in, so many bytes follow it; the rest, less the zero
    after them, is the number. A first byte of all ones is followed by eight bytes, the number.
    IndexError when the data ends in it. Source: MySQL's
    ``libs/mysql/serialization/variable_length_integers.h``.
    """
    first = data[at]
    following = (~first & (first + 1)).bit_length() - 1
    if following >= 8:
        return _little(data, at + 1, 8), at + 9
    return _little(data, at, following + 1) >> (following + 1), at + following + 1


def signed_trailing_ones(data: bytes, at: int) -> tuple[int, int]:
    """Do as `trailing_ones` for a signed integer, whose sign is in the lowest bit."""
    number, end = trailing_ones(data, at)
    return (~(number >> 1) if number & 1 else number >> 1), end


def _little(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + width], "little")


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
