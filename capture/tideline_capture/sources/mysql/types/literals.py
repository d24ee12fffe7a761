r"""Values of a column as literals in SQL, from two forms of text.

*As users write them* (`literal`): numbers, dates, text as such, bytes as ``\x`` and hex. *As a dump
remembers its position* (`key_text`, `key_literal`): the very bytes of a text in its column's
charset, and ENUM and SET by their number, which defines their order (``e > 'b'`` would compare
texts, and skip rows). Nothing of either gets into a statement unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from tideline.contract.errors import CorruptData
from tideline.contract.types import Kind
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn
from tideline_capture.sources.mysql.types.texts import to_arrow

_HEX = re.compile(r"\\x(?:[0-9a-fA-F]{2})*")
_INTEGER = re.compile(r"[+-]?[0-9]{1,255}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,255}\.?|[0-9]{0,65}\.[0-9]{1,65})")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,400}\.?|[0-9]{0,400}\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]{1,6})0*)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_UTC = re.compile(r"Z|[+-]00(?::?00)?")
_TIME = re.compile(r"(-?)([0-9]{1,3}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?")
_YEAR = re.compile(r"[0-9]{1,4}")
_BITS = re.compile(r"[01]{1,64}")
_NATIVE = re.compile(r"[0-9a-fA-F:.-]{1,64}")
_INTEGERS = (Code.TINY, Code.SHORT, Code.INT24, Code.LONG, Code.LONGLONG)
_FLOATS = (Code.FLOAT, Code.DOUBLE)
_TIMES = (Code.TIME, Code.TIME2)
_LABELLED = (Code.ENUM, Code.SET)
_STORED = (Code.STRING, Code.VARCHAR, Code.BLOB)
_MOMENTS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


class NotAValue(ValueError):
    """A text is not a value of its column's type."""


def literal(text: str, column: MysqlColumn) -> str:
    """Return ``text``, as users write a value of ``column``, in SQL; raises NotAValue."""
    printed = _printed(text, column)
    if isinstance(printed, bytes):
        return f"X'{printed.hex()}'"
    if column.code in _FLOATS:
        return printed if "e" in printed else f"{printed}E0"
    if column.code in (*_INTEGERS, Code.NEWDECIMAL):
        return printed
    if column.code == Code.BIT:
        return str(int(printed, 2))
    if column.code in (Code.YEAR, *_TIMES) or column.logical.kind in _MOMENTS or column.native:
        return f"'{printed}'"
    return f"_utf8mb4 X'{printed.encode().hex()}'"


def typed(texts: Sequence[str], column: MysqlColumn) -> pa.Array:
    """Return texts as users write them as values of ``column``, NULL where its type cannot hold
    them; raises NotAValue."""
    printed = [_printed(text, column) for text in texts]
    if column.logical.kind is Kind.BINARY:
        return pa.array(printed, pa.binary())
    if column.logical.kind is Kind.STRING:
        return pa.array(printed, pa.string())
    try:
        return to_arrow(pa.array(printed, pa.string()).cast(pa.binary()), column).values
    except CorruptData:
        raise NotAValue from None


def by_number(column: MysqlColumn) -> bool:
    """Return whether the order of the column's values is that of their numbers, not of their
    texts."""
    return column.code in _LABELLED


def key_text(raw: bytes, column: MysqlColumn) -> str:
    """Return a key's value from the text protocol (the number, if `by_number`), to be
    remembered."""
    if column.code == Code.BIT:
        return str(int.from_bytes(raw, "big"))
    return rf"\x{raw.hex()}" if _is_stored(column) else raw.decode("ascii")


def key_literal(text: str, column: MysqlColumn) -> str:
    """Return the SQL of a result of `key_text`; raises NotAValue when it was another type's."""
    if column.code == Code.BIT or by_number(column):
        return _match(_INTEGER, text)
    if _is_stored(column):
        digits = _match(_HEX, text)[2:]
        return f"X'{digits}'" if column.charset == BYTES else f"_{column.charset} X'{digits}'"
    return literal(text, column)


def ordered_literal(text: str, column: MysqlColumn) -> str:
    """Return ``text``, as users write a value of ``column``, in the form that defines the column's
    order; raises NotAValue."""
    if not by_number(column):
        return literal(text, column)
    labels = list(column.labels)
    try:
        if column.code == Code.ENUM:
            return str(labels.index(text) + 1)
        return str(sum(1 << labels.index(one) for one in text.split(",") if one))
    except ValueError:
        raise NotAValue from None


def _is_stored(column: MysqlColumn) -> bool:
    """Return whether a value is the stored bytes, in the column's charset if it has one."""
    return column.code in _STORED and not column.native


def _match(form: re.Pattern[str], text: str) -> str:
    if form.fullmatch(text) is None:
        raise NotAValue
    return text


def _printed(text: str, column: MysqlColumn) -> str | bytes:
    """Return ``text`` as the server would print that value; bytes for columns of bytes."""
    code, kind = column.code, column.logical.kind
    if kind is Kind.BINARY:
        return bytes.fromhex(_match(_HEX, text)[2:])
    if code in _INTEGERS:
        return str(int(_match(_INTEGER, text)))
    if code == Code.NEWDECIMAL:
        return _match(_DECIMAL, text).removeprefix("+")
    if code in _FLOATS:
        return _double(float(_match(_FLOAT, text)), single=code == Code.FLOAT)
    if code == Code.YEAR:
        return _match(_YEAR, text).zfill(4)
    if code == Code.BIT:
        return _match(_BITS, text).zfill(column.length)
    if code in _TIMES:
        return _time(text, column.fsp)
    if kind in _MOMENTS:
        return _moment(text, kind)
    return _match(_NATIVE, text).lower() if column.native else text


def _double(value: float, *, single: bool) -> str:
    """Return the double that is stored for ``value``."""
    with np.errstate(over="ignore"):
        stored = float(np.float32(value)) if single else value
    if stored in (float("inf"), float("-inf")):
        raise NotAValue
    return repr(stored)


def _time(text: str, digits: int) -> str:
    found = _TIME.fullmatch(text)
    if found is None:
        raise NotAValue
    sign, hours, minutes, seconds, fraction = found.groups()
    fraction = (fraction or "").rstrip("0").ljust(digits, "0")
    if len(fraction) > digits:
        raise NotAValue
    return f"{sign}{int(hours):02}:{minutes}:{seconds}" + (f".{fraction}" if fraction else "")


def _moment(text: str, kind: Kind) -> str:
    """Convert a date, or a date and time; only a TIMESTAMP can be converted from another time
    zone."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise NotAValue
    day, minute, second, fraction, zone = found.groups()
    clock = (minute or "00:00") + (second or ":00") + (f".{fraction}" if fraction else "")
    if zone is not None and _UTC.fullmatch(zone) is None:
        if kind is not Kind.TIMESTAMP:
            raise NotAValue
        day, clock = _utc(f"{day}T{clock}{zone}")
    return day if kind is Kind.DATE and set(clock) <= set("0:.") else f"{day} {clock}"


def _utc(text: str) -> tuple[str, str]:
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise NotAValue from None
    return moment.strftime("%Y-%m-%d"), moment.strftime("%H:%M:%S.%f")
