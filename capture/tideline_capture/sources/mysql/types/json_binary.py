"""MySQL's binary JSON, printed as ``SELECT`` prints it.

A value is a type byte and its bytes. Objects and arrays hold their size, then an entry per key
(offset and length) and per value (type, and the offset of its bytes or, of small ones, the value
itself), then keys and values. Offsets count from the container's size field; they have two bytes
in small containers and four in large ones. (MySQL: sql-common/json_binary.h, json_dom.cc.)

MariaDB's JSON is a text column; none of this concerns it.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from json.encoder import encode_basestring as quoted

import numpy as np

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.types.columns import Code
from tideline_capture.sources.mysql.types.decimals import decimal_texts, decimal_width

DEPTH_MAX = 100
"""The server refuses documents that are deeper."""

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_STRING, _OPAQUE = 12, 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS: Mapping[int, struct.Struct] = {
    5: struct.Struct("<h"),
    6: struct.Struct("<H"),
    7: struct.Struct("<i"),
    8: struct.Struct("<I"),
    9: struct.Struct("<q"),
    10: struct.Struct("<Q"),
}
_DOUBLE_TYPE = 11
_DOUBLE = struct.Struct("<d")
_INLINE = {False: (_LITERAL, 5, 6), True: (_LITERAL, 5, 6, 7, 8)}
"""Types whose value stands in the entry, of small and of large containers."""

_LENGTH_BYTES_MAX = 5
_CHARACTERS_PER_BYTE_MAX = 8
"""Six are a control character's; an empty key with an empty text is eight in seven bytes."""
_BASE64_LINE = 76
_POINT_PLACES_MAX = 15
_VAR_STRING = 253


def json_text(raw: bytes) -> str:
    """Print the document ``raw`` as text. Raises CorruptData for bytes that are no document.

    An empty one stands for ``null``: the server stores it where it had to make up a value.
    """
    if not raw:
        return _LITERALS[0]
    parts = _Text(len(raw))
    try:
        _print(raw, raw[0], 1, parts, 0)
    except (IndexError, KeyError, ValueError, struct.error):
        raise CorruptData("a JSON value of the binlog is damaged") from None
    return "".join(parts.pieces)


class _Text:
    """The pieces of a document's text. Raises CorruptData for more pieces than its bytes can stand
    for: then values overlap, and a few of them could reach any length."""

    def __init__(self, size: int) -> None:
        self.pieces: list[str] = []
        self._left = _CHARACTERS_PER_BYTE_MAX * (size + _LENGTH_BYTES_MAX)

    def append(self, piece: str) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise CorruptData("a JSON value of the binlog holds values that lie in each other")
        self.pieces.append(piece)


def double_text(value: float) -> str:
    """Return a double as the server prints it: the fewest digits that are exact, an exponent when
    the point is more than 15 places away, and always a sign that it is not an integer."""
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    if not math.isfinite(value):
        raise CorruptData(f"a JSON value of the binlog is the number {value}")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    # The point stands before the digits, and this many places to the right.
    point = len(shown) + exponent
    minus = "-" if sign else ""
    if not 1 - _POINT_PLACES_MAX <= point <= _POINT_PLACES_MAX:
        rest = f".{shown[1:]}" if len(shown) > 1 else ""
        return f"{minus}{shown[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{shown}"
    if point >= len(shown):
        return f"{minus}{shown.ljust(point, '0')}.0"
    return f"{minus}{shown[:point]}.{shown[point:]}"


def _print(raw: bytes, kind: int, at: int, parts: _Text, depth: int) -> None:
    """Print the value of type ``kind`` whose bytes begin ``at``."""
    if kind in _NUMBERS:
        parts.append(str(_NUMBERS[kind].unpack_from(raw, at)[0]))
    elif kind == _STRING:
        parts.append(quoted(_counted(raw, at).decode()))
    elif kind == _DOUBLE_TYPE:
        parts.append(double_text(_DOUBLE.unpack_from(raw, at)[0]))
    elif kind == _LITERAL:
        parts.append(_LITERALS[raw[at]])
    elif kind == _OPAQUE:
        parts.append(_opaque(raw[at], _counted(raw, at + 1)))
    elif depth >= DEPTH_MAX:
        raise CorruptData(f"a JSON value of the binlog is more than {DEPTH_MAX} levels deep")
    elif kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        _print_object(raw, at, parts, depth, large=kind == _LARGE_OBJECT)
    elif kind in (_SMALL_ARRAY, _LARGE_ARRAY):
        _print_array(raw, at, parts, depth, large=kind == _LARGE_ARRAY)
    else:
        raise CorruptData(f"a JSON value of the binlog has the unknown type {kind}")


def _print_object(raw: bytes, at: int, parts: _Text, depth: int, *, large: bool) -> None:
    size = 4 if large else 2
    count = _unsigned(raw, at, size)
    keys = at + 2 * size
    values = _entries(raw, at, keys + count * (size + 2), count, large=large)
    opening = "{"
    for place, (kind, value_at) in enumerate(values):
        entry = keys + place * (size + 2)
        begin = at + _unsigned(raw, entry, size)
        key = raw[begin : begin + _unsigned(raw, entry + size, 2)]
        parts.append(f"{opening}{quoted(key.decode())}: ")
        _print(raw, kind, value_at, parts, depth + 1)
        opening = ", "
    parts.append("}" if count else "{}")


def _print_array(raw: bytes, at: int, parts: _Text, depth: int, *, large: bool) -> None:
    size = 4 if large else 2
    count = _unsigned(raw, at, size)
    opening = "["
    for kind, value_at in _entries(raw, at, at + 2 * size, count, large=large):
        parts.append(opening)
        _print(raw, kind, value_at, parts, depth + 1)
        opening = ", "
    parts.append("]" if count else "[]")


def _entries(
    raw: bytes, container: int, at: int, count: int, *, large: bool
) -> Iterator[tuple[int, int]]:
    """Yield the type of each value, and where its bytes are."""
    size = 4 if large else 2
    for entry in range(at, at + count * (size + 1), size + 1):
        kind = raw[entry]
        inline = kind in _INLINE[large]
        yield kind, entry + 1 if inline else container + _unsigned(raw, entry + 1, size)


def _unsigned(raw: bytes, at: int, size: int) -> int:
    number = raw[at : at + size]
    if len(number) < size:
        raise IndexError(at)
    return int.from_bytes(number, "little")


def _counted(raw: bytes, at: int) -> bytes:
    """Return bytes behind their length, which has 7 bits per byte, the last one below 128."""
    length = 0
    for place in range(_LENGTH_BYTES_MAX):
        byte = raw[at + place]
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            begin = at + place + 1
            value = raw[begin : begin + length]
            if len(value) < length:
                raise IndexError(at)
            return value
    raise CorruptData("a JSON value of the binlog has a length of too many bytes")


def _opaque(code: int, value: bytes) -> str:
    """Return a value of one of the server's own types; its bytes where JSON has no form for it."""
    if code in _OPAQUE_TEXTS:
        return _OPAQUE_TEXTS[code](value)
    text = base64.b64encode(value).decode()
    lines = [text[at : at + _BASE64_LINE] for at in range(0, len(text), _BASE64_LINE)]
    return quoted(f"base64:type{code}:" + "\n".join(lines))


def _decimal(value: bytes) -> str:
    precision, scale = value[0], value[1]
    stored = value[2:]
    if len(stored) != decimal_width(precision, scale):
        raise IndexError(precision)
    return str(decimal_texts(np.frombuffer(stored, np.uint8)[None, :], precision, scale)[0])


def _date(value: bytes) -> str:
    return f'"{_day(_packed(value))}"'


def _datetime(value: bytes) -> str:
    packed = _packed(value)
    return f'"{_day(packed)} {_clock(packed, packed >> 36 & 31)}"'


def _time(value: bytes) -> str:
    packed = _packed(value)
    size = abs(packed)
    return f'"{"-" if packed < 0 else ""}{_clock(size, size >> 36 & 1023)}"'


def _packed(value: bytes) -> int:
    """Return the packed number with its sign: year * 13 + month (17 bits), day (5), hour (5; of a
    time 10), minute (6), second (6), µs (24)."""
    (number,) = _NUMBERS[9].unpack(value)
    return int(number)


def _day(packed: int) -> str:
    year, month = divmod(packed >> 46, 13)
    return f"{year:04d}-{month:02d}-{packed >> 41 & 31:02d}"


def _clock(packed: int, hour: int) -> str:
    minute, second = packed >> 30 & 63, packed >> 24 & 63
    return f"{hour:02d}:{minute:02d}:{second:02d}.{packed & 0xFFFFFF:06d}"


_OPAQUE_TEXTS: Mapping[int, Callable[[bytes], str]] = {
    Code.NEWDECIMAL: _decimal,
    Code.DATE: _date,
    Code.DATETIME: _datetime,
    Code.TIMESTAMP: _datetime,
    Code.TIME: _time,
    _VAR_STRING: lambda value: quoted(value.decode()),
}
