"""Text-protocol values as Arrow: every type, NULL, and what a type cannot hold."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tideline.contract.errors import CorruptData
from tideline_capture.arrow_types import arrow_type
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn
from tideline_capture.sources.mysql.types.texts import to_arrow

UTC = datetime.UTC


def column(code: int, **fields: Any) -> MysqlColumn:
    return MysqlColumn("k", code, **fields)


VALUES: dict[str, tuple[MysqlColumn, list[bytes], list[Any]]] = {
    "tinyint": (column(Code.TINY), [b"-128", b"127"], [-128, 127]),
    "zerofill": (column(Code.LONG, unsigned=True), [b"00000042"], [42]),
    "bigint unsigned": (
        column(Code.LONGLONG, unsigned=True),
        [b"18446744073709551615"],
        [Decimal(18446744073709551615)],
    ),
    "float": (
        column(Code.FLOAT),
        [b"3.299999952316284", b"9.999999680285692e37", b"-0"],
        [3.299999952316284, 9.999999680285692e37, -0.0],
    ),
    "double": (column(Code.DOUBLE), [b"1.7976931348623157e308"], [1.7976931348623157e308]),
    "decimal": (
        column(Code.NEWDECIMAL, precision=10, scale=3),
        [b"0000001.500", b"-9999999.999"],
        [Decimal("1.500"), Decimal("-9999999.999")],
    ),
    "wide decimal": (
        column(Code.NEWDECIMAL, precision=65, scale=3, unsigned=True),
        [b"0000.500", b"0012.000", b"1.000"],
        ["0.500", "12.000", "1.000"],
    ),
    "year": (column(Code.YEAR), [b"0000", b"2155"], [0, 2155]),
    "date": (column(Code.DATE), [b"0001-01-01"], [datetime.date(1, 1, 1)]),
    "datetime": (
        column(Code.DATETIME2, fsp=3),
        [b"2024-02-29 23:59:59.123", b"9999-12-31 00:00:00.000"],
        [datetime.datetime(2024, 2, 29, 23, 59, 59, 123000), datetime.datetime(9999, 12, 31)],
    ),
    "timestamp": (
        column(Code.TIMESTAMP2, fsp=6),
        [b"2038-01-19 03:14:07.999999"],
        [datetime.datetime(2038, 1, 19, 3, 14, 7, 999999, UTC)],
    ),
    "time": (column(Code.TIME2, fsp=6), [b"-00:00:00.000001"], ["-00:00:00.000001"]),
    "bit": (column(Code.BIT, length=12), [b"\x01\x00", b"\x0f\xff"], ["000100000000", "1" * 12]),
    "bit(64)": (column(Code.BIT, length=64), [b"\x80" + bytes(7)], ["1" + "0" * 63]),
    "enum": (column(Code.ENUM, charset="latin1"), [b"\xe9", b"", b"\xe9"], ["é", "", "é"]),
    "set": (column(Code.SET, charset="utf8mb4"), [b"a,b", b""], ["a,b", ""]),
    "utf16 set": (column(Code.SET, charset="utf16"), [b"\0a\0,\0b"], ["a,b"]),
    "text": (column(Code.VARCHAR, charset="latin1"), [b"\xe9", b""], ["é", ""]),
    "bytes": (column(Code.STRING, charset=BYTES, length=3), [b"a\0\0"], [b"a\0\0"]),
    "uuid": (
        column(Code.STRING, charset=BYTES, length=16, native="uuid"),
        [b"10000000-0000-4000-8000-000000000001"],
        ["10000000-0000-4000-8000-000000000001"],
    ),
    "json": (column(Code.JSON, length=4), ['{"é": 1}'.encode()], ['{"é": 1}']),
    "geometry": (column(Code.GEOMETRY, length=4), [b"\0\xff"], [b"\0\xff"]),
    "vector": (column(Code.VECTOR, length=4), [b"\0\0\x80\x3f"], [b"\0\0\x80\x3f"]),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type(name: str) -> None:
    one, printed, wanted = VALUES[name]
    raw = pa.array([b"kept out", None, *printed, None], pa.binary())[1:]
    converted = to_arrow(raw, one)
    assert converted.values.to_pylist() == [None, *wanted, None]
    assert converted.values.type == arrow_type(one.logical)
    assert converted.overflow is None
    assert to_arrow(raw[:0], one).values.type == converted.values.type
    assert to_arrow(raw[:1], one).values.to_pylist() == [None]


def test_a_negative_zero_keeps_its_sign() -> None:
    assert str(to_arrow(pa.array([b"-0"], pa.binary()), column(Code.FLOAT)).values[0]) == "-0.0"


@pytest.mark.parametrize(
    "day", ["0000-00-00", "2004-00-10", "2004-02-30", "2023-02-29", "1900-02-29", "0000-01-01"]
)
@pytest.mark.parametrize("code", [Code.DATE, Code.DATETIME2, Code.TIMESTAMP2])
def test_what_no_calendar_has_is_kept_as_text(day: str, code: int) -> None:
    clock = "" if code == Code.DATE else " 00:00:00.500000"
    texts = [f"2000-02-29{clock}", day + clock, None, f"0001-01-01{clock}"]
    raw = pa.array(["", *texts], pa.string()).cast(pa.binary())[1:]
    converted = to_arrow(raw, column(code, fsp=0 if code == Code.DATE else 6))
    assert converted.values.is_valid().to_pylist() == [True, False, False, True]
    assert converted.overflow is not None
    assert converted.overflow.to_pylist() == [None, day + clock, None, None]


@pytest.mark.parametrize(
    ("one", "printed"),
    [
        (column(Code.LONG), b"hunter2"),
        (column(Code.TINY), b"128"),
        (column(Code.DATETIME2), b"hunter2"),
        (column(Code.BIT, length=12), b"\x01"),
        (column(Code.TIME2), b"\xff"),
        (column(Code.NULL), b"hunter2"),
    ],
)
def test_what_the_server_would_not_print_is_corrupt(one: MysqlColumn, printed: bytes) -> None:
    with pytest.raises(CorruptData) as raised:
        to_arrow(pa.array([printed], pa.binary()), one)
    assert "hunter2" not in str(raised.value)
