"""DATE, DATETIME, TIMESTAMP, TIME and YEAR as both servers store them.

Dates and times are bit fields, packed so that they sort as numbers; the first day of each month and
each time of day are looked up in tables. Dates that no calendar has (``0000-00-00``,
``2004-00-10``, ``2004-04-31``, the year 0) are NULL and stand in the overflow as the server prints
them. TIME, of which a day has too few hours, is text. (MySQL: sql-common/my_time.cc.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import CorruptData
from tideline_capture.arrow_types import UTC_MICROSECONDS, Converted
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.mysql.types.arrays import (
    big_endian,
    little_endian,
    texts_of,
    values_array,
    with_nulls,
)
from tideline_capture.sources.mysql.types.fields import Fixed
from tideline_capture.sources.mysql.types.gather import Mask

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_NO_TIME = -1

_YEAR_BASE = 1900
_DATETIME_MONTHS = 13
_TIME_OFFSET = 0x800000


@dataclass(frozen=True, slots=True)
class _Calendar:
    """The calendar by year and month as a type packs them: the day before the month (days since
    1970), and the last day of it (0 where the calendar has no such month)."""

    before: Int64Array
    last_day: npt.NDArray[np.int64]


def dates(field: Fixed) -> Converted:
    """Decode DATE: 3 bytes, little endian: year (15 bits), month (4), day (5)."""
    stored = little_endian(field.raw)
    calendar, month, day = _calendar(16, 19), stored >> 5, stored & 31
    days = (calendar.before[month] + day).astype(np.int32)
    bad = (day > calendar.last_day[month]) | (day == 0)
    return _checked(pa.date32(), days, bad, stored, field.nulls, _date_text)


def datetimes(field: Fixed, fsp: int) -> Converted:
    """Decode DATETIME2: big endian: a set bit, year * 13 + month (17 bits), day (5), hour (5),
    minute (6), second (6), fraction."""
    stored, below = big_endian(field.raw), 8 * _fraction_bytes(fsp)
    calendar, month = _calendar(_DATETIME_MONTHS, 17), stored >> (below + 22) & 0x3FFFF
    day = stored >> (below + 17) & 31
    clock = _clock()[stored >> below & 0x1FFFF]
    micros = (calendar.before[month] + day) * _DAY_US + clock
    if below:
        micros += (stored & ((1 << below) - 1)) * _fraction_us(fsp)
    bad = (day > calendar.last_day[month]) | (day == 0) | (clock == _NO_TIME)

    def text(value: int) -> str:
        return _datetime_text(value & (1 << below + 39) - 1, fsp)

    return _checked(pa.timestamp("us"), micros, bad, stored, field.nulls, text)


def timestamps(field: Fixed, fsp: int) -> Converted:
    """Decode TIMESTAMP2: big endian: seconds since 1970 UTC (32 bits), fraction; 0 is no time at
    all."""
    stored, below = big_endian(field.raw), 8 * _fraction_bytes(fsp)
    micros = (stored >> below) * _SECOND_US
    if below:
        micros += (stored & ((1 << below) - 1)) * _fraction_us(fsp)
    return _checked(
        UTC_MICROSECONDS, micros, stored == 0, stored, field.nulls, lambda _: _zero_text(fsp)
    )


def times(field: Fixed, fsp: int) -> Converted:
    """Decode TIME2: big endian and signed, offset by 2**23: hour (10 bits), minute (6), second (6),
    fraction. Sign, time and fraction are one number."""
    below = 8 * _fraction_bytes(fsp)
    stored = big_endian(field.raw) - (_TIME_OFFSET << below)
    if field.nulls is not None:
        stored[field.nulls] = 0
    size = np.abs(stored)
    micros = (size & ((1 << below) - 1)) * _fraction_us(fsp) if fsp else None
    if micros is not None and (micros >= _SECOND_US).any():
        raise CorruptData("a TIME of the binlog has a fraction of more than a second")
    hours, clock = size >> (below + 12) & 0x7FF, size >> below & 0xFFF
    texts = _time_texts(hours, clock, stored < 0, micros, fsp=fsp)
    return Converted(texts if field.nulls is None else with_nulls(texts, field.nulls))


def years(field: Fixed) -> Converted:
    """Decode YEAR: years since 1900; 0 is the year 0."""
    stored = field.raw[:, 0].astype(np.int32)
    values = np.where(stored == 0, 0, stored + _YEAR_BASE).astype(np.int32)
    return Converted(values_array(pa.int32(), values, field.nulls))


def time_width(base: int, fsp: int) -> int:
    """Return how many bytes a type takes that takes ``base`` without a fraction."""
    return base + _fraction_bytes(fsp)


def _fraction_bytes(fsp: int) -> int:
    return (fsp + 1) // 2


def _fraction_us(fsp: int) -> int:
    """Return the µs per unit of the stored fraction: two digits per byte."""
    return int(10 ** (6 - 2 * _fraction_bytes(fsp)))


def _checked(
    kind: pa.DataType,
    values: npt.NDArray[np.int32] | Int64Array,
    bad: Mask,
    stored: Int64Array,
    nulls: Mask | None,
    text: Callable[[int], str],
) -> Converted:
    """Return values; where ``bad`` (and not NULL) the stored text instead."""
    if nulls is not None:
        bad = bad & ~nulls
    if not bad.any():
        return Converted(values_array(kind, values, nulls))
    absent = bad if nulls is None else bad | nulls
    return Converted(values_array(kind, values, absent), texts_of(stored, text, ~bad))


@functools.lru_cache(maxsize=4)
def _calendar(months: int, bits: int) -> _Calendar:
    """Return the table for ``year * months + month`` in ``bits`` bits, and the bit above them set
    when ``months`` is 13 (a DATETIME that is not negative)."""
    size, base = 1 << bits, 0
    if months == _DATETIME_MONTHS:
        size, base = size * 2, size
    before: Int64Array = np.zeros(size, np.int64)
    last_day: Int64Array = np.zeros(size, np.int64)
    starts = np.arange("0001-01", "10000-02", dtype="datetime64[M]").astype("datetime64[D]")
    days = starts.astype(np.int64)
    order = np.arange(len(days) - 1)
    places = base + (order // 12 + 1) * months + order % 12 + 1
    before[places] = days[:-1] - 1
    last_day[places] = np.diff(days)
    return _Calendar(before, last_day)


@functools.lru_cache(maxsize=1)
def _clock() -> Int64Array:
    """Return the µs by hour, minute and second as a DATETIME packs them; `_NO_TIME` for an invalid
    time."""
    hour, minute, second = np.arange(32)[:, None, None], np.arange(64)[:, None], np.arange(64)
    micros = ((hour * 60 + minute) * 60 + second) * _SECOND_US
    return np.where((hour < 24) & (minute < 60) & (second < 60), micros, _NO_TIME).reshape(-1)


def _date_text(stored: int) -> str:
    return f"{stored >> 9:04d}-{stored >> 5 & 15:02d}-{stored & 31:02d}"


def _datetime_text(stored: int, fsp: int) -> str:
    below = 8 * _fraction_bytes(fsp)
    packed = stored >> below & (1 << 39) - 1
    year, month = divmod(packed >> 22, _DATETIME_MONTHS)
    clock = f"{packed >> 12 & 31:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"
    fraction = (stored & (1 << below) - 1) * _fraction_us(fsp)
    return f"{year:04d}-{month:02d}-{packed >> 17 & 31:02d} {clock}{_fraction_text(fraction, fsp)}"


def _zero_text(fsp: int) -> str:
    return f"0000-00-00 00:00:00{_fraction_text(0, fsp)}"


def _fraction_text(micros: int, fsp: int) -> str:
    return f".{micros:06d}"[: fsp + 1] if fsp else ""


def _time_texts(
    hours: Int64Array, clock: Int64Array, negative: Mask, micros: Int64Array | None, *, fsp: int
) -> pa.StringArray:
    """Print ``[-]HH:MM:SS[.fraction]``, put together from the texts of all hours, minutes with
    seconds, and thousands."""
    parts = [
        _HOURS.take(pa.array(hours + _HOURS_MAX * negative)),
        _CLOCKS.take(pa.array(clock)),
    ]
    if micros is not None:
        parts.append(_THOUSANDTHS.take(pa.array(micros // 1000)))
        parts.append(_THOUSANDS.take(pa.array(micros % 1000)))
    joined = pc.binary_join_element_wise(*parts, "")
    if micros is not None and fsp < _FSP_MAX:
        joined = pc.utf8_slice_codeunits(joined, 0, fsp - _FSP_MAX)
    return joined


_FSP_MAX = 6
_HOURS_MAX = 2048
_HOURS = pa.array([f"{sign}{hour:02d}:" for sign in ("", "-") for hour in range(_HOURS_MAX)])
_CLOCKS = pa.array([f"{minute:02d}:{second:02d}" for minute in range(64) for second in range(64)])
_THOUSANDTHS = pa.array([f".{number:03d}" for number in range(1000)])
_THOUSANDS = pa.array([f"{number:03d}" for number in range(1000)])
