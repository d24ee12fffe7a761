"""Binary JSON as text: numbers' forms, containers built by hand, and what is damaged.

What the servers store and print for real documents is `tests/integration/test_mysql_decode.py`'s.
"""

from __future__ import annotations

import struct

import pytest

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.types.json_binary import DEPTH_MAX, double_text, json_text

EMPTY_ARRAY = b"\x02\0\0\x04\0"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (123456789012345.0, "123456789012345.0"),
        (999999999999999.0, "999999999999999.0"),
        (1e15, "1e15"),
        (1.25e17, "1.25e17"),
        (0.001, "0.001"),
        (1e-14, "0.00000000000001"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (1.5e-300, "1.5e-300"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
    ],
)
def test_doubles(value: float, text: str) -> None:
    assert double_text(value) == text
    assert float(text) == value


def test_scalars() -> None:
    assert json_text(b"") == "null"
    assert [json_text(b"\x04" + bytes([at])) for at in range(3)] == ["null", "true", "false"]
    assert json_text(b"\x05" + struct.pack("<h", -5)) == "-5"
    assert json_text(b"\x0a" + b"\xff" * 8) == str(2**64 - 1)
    assert json_text(b'\x0c\x05a"\\\n\x01') == '"a\\"\\\\\\n\\u0001"'
    assert json_text(b"\x0c\x82\x01" + b"x" * 130) == f'"{"x" * 130}"'


def test_containers() -> None:
    """{"a": 1, "bc": [true, "x"]}, by the manual's layout."""
    array = b"\x02\0\x0c\0\x04\x01\0\x0c\x0a\0\x01x"
    keys_at = 4 + 2 * 4 + 2 * 3
    body = struct.pack("<HHHH", keys_at, 1, keys_at + 1, 2) + b"\x05\x01\0"
    body += b"\x02" + struct.pack("<H", keys_at + 3) + b"abc" + array
    document = b"\0" + struct.pack("<HH", 2, 4 + len(body)) + body
    assert json_text(document) == '{"a": 1, "bc": [true, "x"]}'
    large = b"\x03" + struct.pack("<II", 1, 13) + b"\x07" + struct.pack("<i", -70000)
    assert json_text(large) == "[-70000]"
    assert json_text(EMPTY_ARRAY) == "[]"
    assert json_text(b"\0\0\0\x04\0") == "{}"


def test_opaque_values() -> None:
    assert json_text(b"\x0f\xf6\x05\x04\x02\x80\x01\x0e"[:2] + b"\x04\x03\x02\x81\x0e") == "1.14"
    assert json_text(b"\x0f\xff\x03abc") == '"base64:type255:YWJj"'
    assert json_text(b"\x0f\xfd\x02hi") == '"hi"'
    time = struct.pack("<q", -((12 << 36) + (34 << 30) + (56 << 24) + 500_000))
    assert json_text(b"\x0f\x0b\x08" + time) == '"-12:34:56.500000"'


@pytest.mark.parametrize(
    "raw",
    [
        b"\x05\x01",
        b"\x0c\x05abc",
        b"\x0c\xff\xff\xff\xff\xff\x01",
        b"\x04\x07",
        b"\x63",
        b"\x02\x05\0\x20\0",
        b"\0\x01\0\x20\0\x12\0\x01\0\x0c\x40\0",
        b"\x0f\xf6\x03\x0a\x02\x80",
        b"\x0f\x0c\x03abc",
        b"\x0c\x01\xff",
    ],
)
def test_damage_is_named(raw: bytes) -> None:
    with pytest.raises(CorruptData, match="JSON"):
        json_text(raw)


def test_a_container_that_holds_itself_ends() -> None:
    """Its only value is itself, by offset 0."""
    with pytest.raises(CorruptData, match=f"{DEPTH_MAX} levels"):
        json_text(b"\x02\x01\0\x07\0\x02\0\0")
