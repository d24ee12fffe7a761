"""Dates and times as Debezium's types have them: numbers since an epoch, or ISO 8601."""

from __future__ import annotations

import re
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

DAY_S = 86_400
SECOND_US = 1_000_000
MS_US = 1_000
_CLOCK = (
    r"^(?P<sign>-?)(?P<hours>[0-9]+):(?P<minutes>[0-9]{2}):(?P<seconds>[0-9]{2})"
    r"(\.(?P<fraction>[0-9]{1,6}))?$"
)
_MOMENT = re.compile(
    r"(\d{4,})-(\d{2})-(\d{2})(?: (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(?:\+00)?)?( BC)?"
)
_INTERVAL = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?"
    r"(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)
_MONTH_US = 2_629_800 * SECOND_US
"""A twelfth of 365.25 days, as Debezium counts."""
_ZONED_CLOCK = re.compile(
    r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?"
)
_INT64 = range(-(2**63), 2**63)


def epoch(column: pa.Array, unit_us: int = 1) -> pa.Int64Array:
    """Return local times as numbers since 1970, of ``unit_us``. Times have no finer part."""
    numbers = column.cast(pa.int64())
    return numbers if unit_us == 1 else _floored(numbers, unit_us)


def zoned(column: pa.Array, digits: int) -> pa.StringArray:
    """Return points in time as ISO 8601, with so many ``digits`` of a second."""
    texts = column.cast(pa.timestamp("us")).cast(pa.string())
    end = 20 + digits if digits else 19
    day, clock = pc.utf8_slice_codeunits(texts, 0, 10), pc.utf8_slice_codeunits(texts, 11, end)
    return pc.binary_join_element_wise(day, clock, "T")


def clock_us(texts: pa.StringArray) -> pa.Int64Array:
    """Return the microseconds of ``[-]hh:mm:ss[.ffffff]``; NULL for any other text."""
    found = pc.extract_regex(texts, _CLOCK)
    sign, hours, minutes, seconds, fraction = (found.field(at) for at in (0, 1, 2, 3, 5))
    size = pc.add(
        pc.multiply(_seconds(hours, minutes, seconds), SECOND_US),
        _int64(pc.utf8_rpad(fraction, 6, "0")),
    )
    signed = pc.if_else(pc.equal(sign, "-"), pc.negate(size), size)
    return pc.if_else(found.is_valid(), signed, pa.scalar(None, pa.int64()))


def clock_ms(texts: pa.StringArray) -> pa.Int64Array:
    """Return the milliseconds of such texts, which have no finer part."""
    return pc.divide(clock_us(texts), MS_US)


def interval_us(text: str) -> int | None:
    """Return the microseconds of an interval of PostgreSQL's, months being a twelfth of a year;
    None where that is no int64."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        return None
    years, months, days, sign, hours, minutes, seconds, fraction = match.groups()
    clock = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    clock_size = clock * SECOND_US + int((fraction or "").ljust(6, "0"))
    total = (
        (int(years or 0) * 12 + int(months or 0)) * _MONTH_US
        + int(days or 0) * DAY_S * SECOND_US
        + (-clock_size if sign == "-" else clock_size)
    )
    return total if total in _INT64 else None


def zoned_clock(text: str) -> str | None:
    """Return a time with a zone at UTC, as ISO 8601 has it; None for a text that is none."""
    match = _ZONED_CLOCK.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds, fraction, sign, *offset = match.groups()
    shift = sum(int(part or 0) * unit for part, unit in zip(offset, (3600, 60, 1), strict=True))
    local = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    at = (local - (shift if sign == "+" else -shift)) % DAY_S
    part = f".{_by_thousands(fraction)}" if fraction else ""
    return f"{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}{part}Z"


def far_day(text: str) -> int | None:
    """Return the days since 1970 of a date that has no place in a part, such as ``0044-03-15 BC``;
    None for one without a number (``infinity``)."""
    found = _far(text)
    return None if found is None else found[0]


def far_us(text: str) -> int | None:
    """Return the same for a time: microseconds."""
    found = _far(text)
    if found is None:
        return None
    total = found[0] * DAY_S * SECOND_US + found[1]
    return total if total in _INT64 else None


def far_zoned(text: str, digits: int) -> str | None:
    """Return such a point in time as ISO 8601 writes it."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hours, minutes, seconds, fraction, before_christ = match.groups()
    number = 1 - int(year) if before_christ else int(year)
    sign = "-" if number < 0 else "+" if number > 9999 else ""
    part = f".{(fraction or '').ljust(6, '0')[:digits]}" if digits else ""
    return f"{sign}{abs(number):04d}-{month}-{day}T{hours}:{minutes}:{seconds}{part}Z"


def _far(text: str) -> tuple[int, int] | None:
    """Return the day, and the microseconds of it."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hours, minutes, seconds, fraction, before_christ = match.groups()
    number = 1 - int(year) if before_christ else int(year)
    cycles, within = divmod(number, 400)
    try:
        # The calendar repeats every 400 years, which are 146,097 days.
        days = date(within + 400, int(month), int(day)).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        return None
    clock = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return (cycles - 1) * 146_097 + days, clock * SECOND_US + int((fraction or "").ljust(6, "0"))


def _seconds(hours: pa.Array, minutes: pa.Array, seconds: pa.Array) -> pa.Int64Array:
    total = pc.add(pc.multiply(_int64(hours), 3600), pc.multiply(_int64(minutes), 60))
    return pc.add(total, _int64(seconds))


def _int64(texts: pa.StringArray) -> pa.Int64Array:
    return pc.if_else(pc.equal(pc.utf8_length(texts), 0), "0", texts).cast(pa.int64())


def _floored(numbers: pa.Int64Array, unit: int) -> pa.Int64Array:
    """Divide towards the past, also before 1970."""
    cut = pc.divide(numbers, unit)
    late = pc.and_(pc.less(numbers, 0), pc.not_equal(pc.multiply(cut, unit), numbers))
    return pc.subtract(cut, late.cast(pa.int64()))


def _by_thousands(fraction: str) -> str:
    """Return the digits of a second as few as hold it, none at the end being 0."""
    return fraction.rstrip("0") or "0"
