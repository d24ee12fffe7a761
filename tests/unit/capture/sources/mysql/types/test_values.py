"""Stored bytes, vector by vector, as the values they are; the model of the format is not asked."""

from __future__ import annotations

import zlib
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.fixtures.mysql_binlog import joined
from tests.fixtures.mysql_images import stored_decimal
from tideline.contract.errors import CorruptData
from tideline_capture.arrow_types import Converted, arrow_type
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn
from tideline_capture.sources.mysql.types.fields import Fixed, Variable
from tideline_capture.sources.mysql.types.values import fixed_values, slot, variable_values


def fixed(column: MysqlColumn, *stored: str) -> Converted:
    """Values given in hex; ``-`` is NULL, with bytes that no value has."""
    width = slot(column).width
    raw = [bytes.fromhex(text) if text != "-" else b"\xff" * width for text in stored]
    assert all(len(one) == width for one in raw)
    nulls = np.array([text == "-" for text in stored])
    rows = np.frombuffer(b"".join(raw), np.uint8).reshape(len(raw), width)
    converted = fixed_values(Fixed(rows, nulls if nulls.any() else None), column)
    assert converted.values.type == arrow_type(column.logical)
    converted.values.validate(full=True)
    return converted


def variable(column: MysqlColumn, *stored: bytes | None) -> Converted:
    data, starts, ends = joined([one or b"" for one in stored])
    nulls = np.array([one is None for one in stored])
    field = Variable(starts, ends - starts, nulls if nulls.any() else None)
    converted = variable_values(data, field, column)
    assert converted.values.type == arrow_type(column.logical)
    converted.values.validate(full=True)
    return converted


def texts(converted: Converted) -> list[Any]:
    """Values, or the overflow's texts in brackets."""
    values: list[Any] = converted.values.to_pylist()
    if converted.overflow is None:
        return values
    prepared = converted.overflow.to_pylist()
    return [v if text is None else f"[{text}]" for v, text in zip(values, prepared, strict=True)]


def test_integers_with_and_without_sign() -> None:
    signed, unsigned = MysqlColumn("v", Code.INT24), MysqlColumn("v", Code.INT24, unsigned=True)
    assert texts(fixed(signed, "ffffff", "-", "000080", "ffff7f")) == [
        -1,
        None,
        -(2**23),
        2**23 - 1,
    ]
    assert texts(fixed(unsigned, "ffffff", "-", "000080")) == [2**24 - 1, None, 2**23]
    big = MysqlColumn("v", Code.LONGLONG, unsigned=True)
    assert texts(fixed(big, "ff" * 8, "-", "00" * 7 + "80")) == [
        Decimal(2**64 - 1), None, Decimal(2**63)
    ]  # fmt: skip


def test_decimals() -> None:
    """The manual's own vector, 1234567890.1234, and its negative."""
    column = MysqlColumn("v", Code.NEWDECIMAL, precision=14, scale=4)
    vector = fixed(column, "810dfb38d204d2", "7ef204c72dfb2d", "-", "80000000000000")
    assert texts(vector) == [
        Decimal("1234567890.1234"), Decimal("-1234567890.1234"), None, Decimal("0.0000")
    ]  # fmt: skip


def test_decimals_of_128_bits() -> None:
    column = MysqlColumn("v", Code.NEWDECIMAL, precision=38, scale=0)
    largest = "e3" + "3b9ac9ff" * 4
    assert largest[:2] == f"{0x80 | 99:02x}"
    flipped = bytes(byte ^ 0xFF for byte in bytes.fromhex(largest)).hex()
    zero, minus_one = "80" + "00" * 16, "7f" + "ff" * 15 + "fe"
    assert texts(fixed(column, largest, flipped, "-", zero, minus_one)) == [
        Decimal("9" * 38), Decimal("-" + "9" * 38), None, Decimal(0), Decimal(-1)
    ]  # fmt: skip


@pytest.mark.parametrize("value", [2**64, 2**64 - 1, 2**96, 3 * 2**64, 10**37])
def test_both_words_of_a_negative_decimal(value: int) -> None:
    """The lower one may be zero, and then carries."""
    column = MysqlColumn("v", Code.NEWDECIMAL, precision=38, scale=0)
    stored = [stored_decimal(Decimal(sign * value), 38, 0).hex() for sign in (1, -1)]
    assert texts(fixed(column, *stored)) == [Decimal(value), Decimal(-value)]


def test_decimals_too_wide_for_one_are_text() -> None:
    column = MysqlColumn("v", Code.NEWDECIMAL, precision=40, scale=30)
    assert slot(column).width == 5 + 14
    one = "8000000001" + "00" * 14
    tiny = "80" + "00" * 4 + "00" * 12 + "0001"[:4]
    assert texts(fixed(column, one, "-", "80" + "00" * 18)) == [
        f"1.{'0' * 30}", None, f"0.{'0' * 30}"
    ]  # fmt: skip
    assert texts(fixed(column, tiny)) == [f"0.{'0' * 29}1"]


def test_dates_that_no_calendar_has_are_told() -> None:
    column = MysqlColumn("v", Code.DATE)
    found = fixed(column, "000000", "4a a8 0f", "-", "9f a8 0f", "21 00 00", "5d d8 0e")
    assert texts(found)[0] == "[0000-00-00]"
    assert [str(value) for value in texts(found)[1:]] == [
        "2004-02-10", "None", "[2004-04-31]", "[0000-01-01]", "[1900-02-29]"
    ]  # fmt: skip


def test_datetimes() -> None:
    column = MysqlColumn("v", Code.DATETIME2, fsp=6)
    found = fixed(column, "99b2c30000" + "000001", "-", "8000000000000000")
    assert [str(value) for value in texts(found)] == [
        "2024-03-01 16:00:00.000001", "None", "[0000-00-00 00:00:00.000000]"
    ]  # fmt: skip


def test_a_zero_timestamp_is_no_moment() -> None:
    plain = fixed(MysqlColumn("v", Code.TIMESTAMP2), "00000000", "-", "00000001", "ffffffff")
    assert [str(value) for value in texts(plain)] == [
        "[0000-00-00 00:00:00]", "None", "1970-01-01 00:00:01+00:00", "2106-02-07 06:28:15+00:00"
    ]  # fmt: skip


def test_times() -> None:
    """The vectors of MySQL's own comment on my_time_packed_to_binary, and the ends of the range."""
    whole = MysqlColumn("v", Code.TIME2)
    assert texts(fixed(whole, "800000", "-", "7fffff", "b46efb", "4b9105")) == [
        "00:00:00", None, "-00:00:01", "838:59:59", "-838:59:59"
    ]  # fmt: skip
    one = MysqlColumn("v", Code.TIME2, fsp=2)
    assert texts(fixed(one, "80000001", "7fffffff", "7fffff00", "7ffffeff")) == [
        "00:00:00.01", "-00:00:00.01", "-00:00:01.00", "-00:00:01.01"
    ]  # fmt: skip
    six = MysqlColumn("v", Code.TIME2, fsp=6)
    assert texts(fixed(six, "7fffffffffff", "-", "800000000001")) == [
        "-00:00:00.000001", None, "00:00:00.000001"
    ]  # fmt: skip
    with pytest.raises(CorruptData, match="fraction"):
        fixed(six, "800000ffffff")


def test_years_and_bits() -> None:
    assert texts(fixed(MysqlColumn("v", Code.YEAR), "00", "01", "-", "ff")) == [0, 1901, None, 2155]
    assert texts(fixed(MysqlColumn("v", Code.BIT, length=9), "0101", "-", "0000")) == [
        "100000001", None, "000000000"
    ]  # fmt: skip


def test_enums_and_sets() -> None:
    enum = MysqlColumn("v", Code.ENUM, length=1, labels=("x", "é"))
    assert texts(fixed(enum, "00", "02", "-", "01")) == ["", "é", None, "x"]
    wide = MysqlColumn("v", Code.ENUM, length=2, labels=tuple(str(at) for at in range(300)))
    assert texts(fixed(wide, "2c01", "-", "0000")) == ["299", None, ""]
    members = MysqlColumn("v", Code.SET, length=8, labels=tuple(f"m{at}" for at in range(64)))
    assert texts(fixed(members, "01000000000000" + "80", "-", "00" * 8)) == ["m0,m63", None, ""]


@pytest.mark.parametrize("code", [Code.ENUM, Code.SET])
def test_a_label_that_is_not_there_is_damage(code: int) -> None:
    column = MysqlColumn("flavour", code, length=1, labels=("a", "b"))
    with pytest.raises(CorruptData, match="flavour"):
        fixed(column, "04")


def test_binary_has_its_zeros_back() -> None:
    column = MysqlColumn("v", Code.STRING, length=4, charset=BYTES)
    assert texts(variable(column, b"", b"\0a", None, b"abcd")) == [
        bytes(4), b"\0a\0\0", None, b"abcd"
    ]  # fmt: skip
    with pytest.raises(CorruptData, match="more bytes"):
        variable(column, b"abcde")


def test_natives_of_mariadb() -> None:
    uuid = MysqlColumn("v", Code.STRING, length=16, charset=BYTES, native="uuid")
    assert texts(variable(uuid, bytes(range(15)), None)) == [
        "00010203-0405-0607-0809-0a0b0c0d0e00", None
    ]  # fmt: skip
    inet4 = MysqlColumn("v", Code.STRING, length=4, charset=BYTES, native="inet4")
    assert texts(variable(inet4, b"\n", b"", None)) == ["10.0.0.0", "0.0.0.0", None]
    inet6 = MysqlColumn("v", Code.STRING, length=16, charset=BYTES, native="inet6")
    one_gap = bytes.fromhex("00010000000300040005000600070008")
    assert texts(variable(inet6, b"", None, b"\x20\x01\x0d\xb8", one_gap)) == [
        "::", None, "2001:db8::", "1::3:4:5:6:7:8"
    ]  # fmt: skip


def test_compressed_columns() -> None:
    column = MysqlColumn("v", Code.VARCHAR, length=200, charset="utf8mb4", compressed=True)
    assert slot(column).length_bytes == 2
    whole = zlib.compress(b"abc" * 60)
    bare = zlib.compressobj(wbits=-15)
    raw = bare.compress(b"xyz") + bare.flush()
    stored = (b"", b"\0plain", None, b"\x81\xb4" + whole, b"\x8a\0\x03" + raw)
    assert texts(variable(column, *stored)) == ["", "plain", None, "abc" * 60, "xyz"]


@pytest.mark.parametrize(
    "stored",
    [
        b"\x81\xb4" + zlib.compress(b"abc" * 60)[:-9],
        b"\x81\xb3" + zlib.compress(b"abc" * 60),
        b"\x81\xb5" + zlib.compress(b"abc" * 60),
        b"\x91\xb4" + zlib.compress(b"abc" * 60),
        b"\x81\x03no zlib",
        b"\x81",
    ],
)
def test_what_cannot_be_expanded_is_damage(stored: bytes) -> None:
    column = MysqlColumn("v", Code.BLOB, length=2, charset=BYTES, compressed=True)
    with pytest.raises(CorruptData, match="cannot be expanded"):
        variable(column, stored)


def test_texts_in_the_columns_own_charset() -> None:
    column = MysqlColumn("v", Code.VARCHAR, length=20, charset="latin1")
    assert texts(variable(column, b"\xe9", b"", None, b"\x80")) == ["é", "", None, "€"]


def test_bytes_that_are_no_text_are_told() -> None:
    column = MysqlColumn("v", Code.VARCHAR, length=20, charset="utf8mb4")
    assert texts(variable(column, b"a\xff", None, b"b")) == ["[a\\xff]", None, "b"]


@pytest.mark.parametrize("code", [Code.DECIMAL, Code.NULL, Code.TIMESTAMP, 250])
def test_an_unknown_type_is_refused_by_column(code: int) -> None:
    with pytest.raises(CorruptData, match="column price"):
        slot(MysqlColumn("price", code))
