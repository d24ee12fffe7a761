r"""Bytes of every charset as text: whole arrays, single labels, and bytes that are no character."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.types.charset_tables import CHAR_BYTES
from tideline_capture.sources.mysql.types.charsets import (
    charset_of,
    decode_label,
    decode_texts,
    is_known,
)

_SEED = 20261121
_ALL = sorted(CHAR_BYTES)
_ASCII = sorted(set(_ALL) - {"swe7", "ucs2", "utf16", "utf16le", "utf32"})


def _decoded(values: list[bytes | None], charset: str) -> tuple[list[object], list[object] | None]:
    converted = decode_texts(pa.array(values, pa.binary()), charset)
    converted.values.validate(full=True)
    assert converted.values.type == pa.string()
    overflow = converted.overflow
    return converted.values.to_pylist(), None if overflow is None else overflow.to_pylist()


@pytest.mark.parametrize(
    ("charset", "stored", "text"),
    [
        ("utf8mb4", "f09f988061", "😀a"),
        ("utf8mb3", "e282ac", "€"),
        ("utf8", "e282ac", "€"),
        ("latin1", "80e981", "€é\x81"),
        ("latin2", "b9e6", "šć"),
        ("cp1251", "cfd0", "ПР"),
        ("koi8u", "95", "•"),
        ("cp866", "fcfd", "ⁿ²"),
        ("hebrew", "afe0", "‾א"),
        ("greek", "a1e1", "ʽα"),
        ("swe7", "5b5c5d7b41", "ÄÖÅäA"),
        ("armscii8", "a2b2b3", "§Աա"),
        ("geostd8", "c0c1", "აბ"),
        ("keybcs2", "80a8", "Čš"),
        ("dec8", "d7a8", "Œ¤"),
        ("hp8", "b0c8", "¯à"),
        ("tis620", "a1", "ก"),
        ("sjis", "93fa815f5cb1", "日\\\\ｱ"),
        ("cp932", "93fa815f8740", "日＼①"),
        ("ujis", "c6fca1c08eb18fb0a1f5a18ff5a1", "日\\ｱ丂\ue000\ue3ac"),
        ("eucjpms", "c6fca1c1ada18fa2b78ff3f38ffefe", "日～①～ⅰ\ue757"),
        ("euckr", "b0a181417e", "가갂~"),
        ("gb2312", "d6d0", "中"),
        ("gbk", "d6d0815c", "中乗"),
        ("big5", "a4a4f9d6", "中碁"),
        ("gb18030", "d6d0a8bc8135f437", "中\u1e3f\ue7c7"),
        ("ucs2", "00e920ac", "é€"),
        ("utf16", "d83dde000041", "😀A"),
        ("utf16le", "3dd800de4100", "😀A"),
        ("utf32", "0001f60000000041", "😀A"),
        ("binary", "c3a9", "é"),
    ],
)
def test_text(charset: str, stored: str, text: str) -> None:
    raw = bytes.fromhex(stored)
    assert _decoded([raw, None, b"", raw], charset) == ([text, None, "", text], None)
    assert decode_label(raw, charset) == text


@pytest.mark.parametrize(
    ("charset", "stored", "printed"),
    [
        ("utf8mb4", "61ff62", r"a\xffb"),
        ("utf8mb3", "eda080", r"\xed\xa0\x80"),
        ("ascii", "6180", r"a\x80"),
        ("cp1256", "8a61", r"\x8aa"),
        ("dec8", "a461", r"\xa4a"),
        ("tis620", "a1db", "ก\\xdb"),
        ("swe7", "7f80", r"\x7f\x80"),
        ("sjis", "6193", r"a\x93"),
        ("sjis", "93fa80", "日\\x80"),
        ("cp932", "a0fdfeff80", r"\xa0\xfd\xfe\xff\x80"),
        ("big5", "a4a4a2cc", "中\\xa2\\xcc"),
        ("ujis", "8fb0a18f", "丂\\x8f"),
        ("ujis", "8f8fb0a1", "\\x8f丂"),
        ("ujis", "8fb0", r"\x8f\xb0"),
        ("ujis", "b08fa1", r"\xb0\x8f\xa1"),
        ("ujis", "8f61", r"\x8f\x61"),
        ("gbk", "d6d0ff", "中\\xff"),
        ("gb18030", "d6d0ff", "中\\xff"),
        ("ucs2", "0061d83dde00", "a\\xd8\\x3d\\xde\\x00"),
        ("utf16", "0061d83d", "a\\xd8\\x3d"),
        ("utf16", "006162", r"a\x62"),
        ("utf32", "000000610000d83d", r"a\x00\x00\xd8\x3d"),
    ],
)
def test_bytes_that_are_no_character(charset: str, stored: str, printed: str) -> None:
    raw = bytes.fromhex(stored)
    good = {"ucs2": b"\0a", "utf16": b"\0a", "utf32": b"\0\0\0a"}.get(charset, b"a")
    values, overflow = _decoded([good, raw, None, good], charset)
    assert values == ["a", None, None, "a"]
    assert overflow == [None, printed, None, None]
    assert decode_label(raw, charset) == printed


@pytest.mark.parametrize("charset", [one for one in _ASCII if one != "binary"])
def test_ascii_costs_a_look_only(charset: str) -> None:
    raw = pa.array([b"plain", None, b"text"], pa.binary())
    values = decode_texts(raw, charset).values
    assert values.to_pylist() == ["plain", None, "text"]
    assert values.buffers()[2].address == raw.buffers()[2].address


def test_valid_utf8_costs_a_look_only() -> None:
    raw = pa.array(["größe", None, "中"], pa.string()).cast(pa.binary())
    values = decode_texts(raw, "utf8mb4").values
    assert values.buffers()[2].address == raw.buffers()[2].address


def test_a_character_does_not_reach_into_the_next_value() -> None:
    assert _decoded([b"\x93", b"\xfa", b"\x93\xfa"], "sjis") == (
        [None, None, "日"],
        [r"\x93", r"\xfa", None],
    )
    assert _decoded([b"\x8f", b"\xb0\xa1"], "ujis") == ([None, "亜"], [r"\x8f", None])
    assert _decoded([b"\xd8\x3d", b"\xde\x00"], "utf16")[0] == [None, None]
    assert _decoded([b"\0a\0", b"b"], "utf16")[0] == [None, None]


@pytest.mark.parametrize("charset", ["gb18030", "ucs2", "utf16", "utf16le", "utf32"])
def test_newlines_in_values(charset: str) -> None:
    codec = {
        "ucs2": "utf-16-be",
        "utf16": "utf-16-be",
        "utf16le": "utf-16-le",
        "utf32": "utf-32-be",
    }
    texts = ["\n", "", "a\n\nß\n", "中\n", "\u0a0a\u000a\u0a00"]
    raw = [one.encode(codec.get(charset, charset)) for one in texts]
    assert _decoded([*raw, None], charset) == ([*texts, None], None)


@pytest.mark.parametrize("charset", _ALL)
def test_arrays_and_labels_agree(charset: str) -> None:
    """Any bytes, in a slice with NULLs: an array gives what its values give one by one."""
    chance = random.Random(f"{_SEED} {charset}")
    values: list[bytes | None] = []
    for _ in range(400):
        units = chance.randrange(5)
        some = b"".join(_unit(chance, charset) for _ in range(units))
        values.append(None if chance.random() < 0.2 else some)
    raw = pa.array(values, pa.binary()).slice(3, 390)
    converted = decode_texts(raw, charset)
    converted.values.validate(full=True)
    overflow = [None] * len(raw) if converted.overflow is None else converted.overflow.to_pylist()
    for one, value, lost in zip(
        raw.to_pylist(), converted.values.to_pylist(), overflow, strict=True
    ):
        assert value is None or lost is None
        text = None if one is None else decode_label(one, charset)
        assert (lost if value is None else value) == text, f"seed {_SEED}"


def _unit(chance: random.Random, charset: str) -> bytes:
    """Any byte, or for sets of wider units one that often is a character."""
    if charset == "utf32":
        return bytes([0, chance.randrange(18), *chance.randbytes(2)])
    return chance.randbytes(2 if charset in ("ucs2", "utf16", "utf16le") else 1)


@pytest.mark.parametrize("charset", _ALL)
def test_nothing_to_decode(charset: str) -> None:
    for raw in (pa.array([], pa.binary()), pa.array([None, None], pa.binary()), pa.array([b""])):
        converted = decode_texts(raw, charset)
        assert converted.values.to_pylist() == [
            None if one is None else "" for one in raw.to_pylist()
        ]
        assert converted.overflow is None


@pytest.mark.parametrize(
    ("collation", "charset", "char_bytes"),
    [
        (8, "latin1", 1),
        (33, "utf8mb3", 3),
        (45, "utf8mb4", 4),
        (63, "binary", 1),
        (255, "utf8mb4", 4),
        (248, "gb18030", 4),
        (1071, "latin1", 1),
        (2304, "utf8mb4", 4),
        (3327, "utf32", 4),
        (97, "eucjpms", 3),
    ],
)
def test_collations(collation: int, charset: str, char_bytes: int) -> None:
    assert charset_of(collation) == (charset, char_bytes)


@pytest.mark.parametrize("collation", [0, 17, 100, 324, 2047, 3328])
def test_an_unknown_collation_is_named(collation: int) -> None:
    with pytest.raises(CorruptData, match=f"collation {collation} "):
        charset_of(collation)


def test_an_unknown_charset_is_named() -> None:
    assert not is_known("klingon")
    with pytest.raises(CorruptData, match="klingon"):
        decode_texts(pa.array([b"a"]), "klingon")
    with pytest.raises(CorruptData, match="klingon"):
        decode_label(b"a", "klingon")
    assert all(map(is_known, [*_ALL, "utf8"]))
