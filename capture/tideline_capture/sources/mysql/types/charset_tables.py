"""The servers' character sets: collation ids, widths, and bytes as code points.

Python's codecs are the base; the servers' differences from them stand here, so that a byte means
what ``CONVERT(… USING utf8mb4)`` gives. MariaDB 10.11, MySQL 8.0 and 9.7 agree on every code of
every set. A code that they print as ``?`` or U+FFFD has no character: it is `NONE` here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NONE = 0xFFFFFFFF
"""The value in a table for no character."""
_EUC_JP = "euc_jp"

_COLLATIONS: Mapping[str, str] = {
    "armscii8": "32 64 1056 1088",
    "ascii": "11 65 1035 1089",
    "big5": "1 84 1025 1108",
    "binary": "63",
    "cp1250": "26 34 44 66 99 1050 1090",
    "cp1251": "14 23 50-52 1074-1075",
    "cp1256": "57 67 1081 1091",
    "cp1257": "29 58-59 1082-1083",
    "cp850": "4 80 1028 1104",
    "cp852": "40 81 1064 1105",
    "cp866": "36 68 1060 1092",
    "cp932": "95-96 1119-1120",
    "dec8": "3 69 1027 1093",
    "eucjpms": "97-98 1121-1122",
    "euckr": "19 85 1043 1109",
    "gb18030": "248-250",
    "gb2312": "24 86 1048 1110",
    "gbk": "28 87 1052 1111",
    "geostd8": "92-93 1116-1117",
    "greek": "25 70 1049 1094",
    "hebrew": "16 71 1040 1095",
    "hp8": "6 72 1030 1096",
    "keybcs2": "37 73 1061 1097",
    "koi8r": "7 74 1031 1098",
    "koi8u": "22 75 1046 1099",
    "latin1": "5 8 15 31 47-49 94 1032 1071",
    "latin2": "2 9 21 27 77 1033 1101",
    "latin5": "30 78 1054 1102",
    "latin7": "20 41-42 79 1065 1103",
    "macce": "38 43 1062 1067",
    "macroman": "39 53 1063 1077",
    "sjis": "13 88 1037 1112",
    "swe7": "10 82 1034 1106",
    "tis620": "18 89 1042 1113",
    "ucs2": "35 90 128-151 159 640-671 1059 1114 1152 1174 2560-2815",
    "ujis": "12 91 1036 1115",
    "utf16": "54-55 101-124 672-703 1078-1079 1125 1147 2816-3071",
    "utf16le": "56 62 1080 1086",
    "utf32": "60-61 160-183 736-767 1084-1085 1184 1206 3072-3327",
    "utf8mb3": "33 76 83 192-215 223 576-607 1057 1107 1216 1238 2048-2303",
    "utf8mb4": "45-46 224-247 255-323 608-639 1069-1070 1248 1270 2304-2559",
}
"""``information_schema.COLLATIONS`` of both families. MySQL's from 255 on and MariaDB's blocks of
32 from 576 and of 256 from 2048 on (its UCA 14.0.0) are taken whole: each is of one set."""

_WIDTHS: Mapping[str, int] = {
    "big5": 2, "cp932": 2, "eucjpms": 3, "euckr": 2, "gb18030": 4, "gb2312": 2, "gbk": 2,
    "sjis": 2, "ucs2": 2, "ujis": 3, "utf16": 4, "utf16le": 4, "utf32": 4, "utf8mb3": 3,
    "utf8mb4": 4,
}  # fmt: skip
CHAR_BYTES: Mapping[str, int] = {name: _WIDTHS.get(name, 1) for name in _COLLATIONS}
"""Charsets by name, and the most bytes that a character has (``CHARACTER_SETS.MAXLEN``)."""


def collations() -> Iterator[tuple[int, str]]:
    """Return every known collation id and its charset."""
    for name, ranges in _COLLATIONS.items():
        for span in ranges.split():
            first, _, last = span.partition("-")
            for collation in range(int(first), int(last or first) + 1):
                yield collation, name


_Points = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class CodeTable:
    """Code points by code, for sets whose first byte gives the length of a character.

    ``points`` is indexed by a byte, by ``lead << 8 | trail`` for two, and by ``0x10000 | lead << 8
    | trail`` for two after 0x8F; `NONE` where there is no character. ``leads`` (256 booleans) marks
    the bytes that another follows; empty in sets of single bytes. ``has_planes``: there are
    characters after 0x8F.
    """

    points: _Points
    leads: npt.NDArray[np.bool_]
    has_planes: bool = False

    @property
    def has_trails(self) -> bool:
        """Return whether there are characters of more than one byte."""
        return len(self.leads) > 0

    @property
    def is_ascii(self) -> bool:
        """Return whether the bytes below 0x80 are ASCII (in all of these sets but swe7)."""
        return bool((self.points[:0x80] == np.arange(0x80)).all())


@functools.lru_cache(maxsize=64)
def code_table(charset: str) -> CodeTable | None:
    """Return the table of a charset of single bytes, or of two or three in the ways of East
    Asia."""
    if charset in _SINGLE:
        return _single(*_SINGLE[charset])
    if charset in _OWN:
        return _own(_OWN[charset])
    if charset in _DOUBLE:
        return _double(*_DOUBLE[charset])
    return None


def _single(codec: str, changes: Mapping[int, int]) -> CodeTable:
    points = np.array([_point(bytes([code]), codec) for code in range(0x100)], np.uint32)
    _change(points, changes)
    return CodeTable(points, np.empty(0, np.bool_))


def _own(upper: str) -> CodeTable:
    points = np.arange(0x100, dtype=np.uint32)
    points[0x80:] = [NONE if point == "-" else int(point, 16) for point in upper.split()]
    return CodeTable(points, np.empty(0, np.bool_))


def _double(codec: str, changes: Mapping[int, int]) -> CodeTable:
    points = np.full(0x20000, NONE, np.uint32)
    points[:0x100] = [_point(bytes([code]), codec) for code in range(0x100)]
    for lead in range(0x81, 0xFF):
        for trail in range(0x40, 0xFF):
            points[lead << 8 | trail] = _point(bytes([lead, trail]), codec)
    if codec == _EUC_JP:
        for lead in range(0xA1, 0xFF):
            for trail in range(0xA1, 0xFF):
                code = 0x10000 | lead << 8 | trail
                points[code] = _point(bytes([0x8F, lead, trail]), codec)
    _change(points, changes)
    leads = (points.reshape(2, 0x100, 0x100) != NONE).any(axis=(0, 2))
    leads[0] = False
    return CodeTable(points, leads, has_planes=codec == _EUC_JP)


def _change(points: _Points, changes: Mapping[int, int]) -> None:
    points[list(changes.keys())] = list(changes.values())


def _point(code: bytes, codec: str) -> int:
    """Return the one character that ``code`` is, else `NONE`."""
    try:
        text = code.decode(codec)
    except UnicodeDecodeError:
        return NONE
    return ord(text) if len(text) == 1 else NONE


def _numbered(first: int, points: str) -> dict[int, int]:
    """Parse codes from ``first`` on and their points in hexadecimal; ``-`` is a gap."""
    listed = enumerate(points.split(), first)
    return {code: int(point, 16) for code, point in listed if point != "-"}


def _private_use() -> dict[int, int]:
    """Return the rows for users of EUC-JP: ten in either plane, at the private use area's
    beginning."""
    codes = [
        plane << 16 | lead << 8 | trail
        for plane in (0, 1)
        for lead in range(0xF5, 0xFF)
        for trail in range(0xA1, 0xFF)
    ]
    return dict(zip(codes, range(0xE000, 0xE000 + len(codes)), strict=True))


def _none(*codes: int) -> dict[int, int]:
    return dict.fromkeys(codes, NONE)


_SINGLE: Mapping[str, tuple[str, Mapping[int, int]]] = {
    "ascii": ("ascii", {}),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", _none(0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF)),
    "cp1257": ("cp1257", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: 0x207F, 0xFD: 0xB2}),
    "dec8": (
        "latin-1",
        {0xA8: 0xA4, 0xD7: 0x152, 0xDD: 0x178, 0xF7: 0x153, 0xFD: 0xFF}
        | _none(0xA4, 0xA6, 0xAC, 0xAD, 0xAE, 0xAF, 0xB4, 0xB8, 0xBE, 0xD0, 0xDE, 0xF0, 0xFE, 0xFF),
    ),
    "greek": ("iso8859_7", {0xA1: 0x2BD, 0xA2: 0x2BC} | _none(0xA4, 0xA5, 0xAA)),
    "hebrew": ("iso8859_8", {0xAF: 0x203E}),
    "hp8": ("hp_roman8", {}),
    "koi8r": ("koi8_r", {}),
    "koi8u": ("koi8_u", {0x95: 0x2022}),
    "latin1": ("cp1252", {code: code for code in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "latin2": ("iso8859_2", {}),
    "latin5": ("iso8859_9", {}),
    "latin7": ("iso8859_13", {}),
    "macce": ("mac_latin2", {}),
    "macroman": ("mac_roman", {}),
    "swe7": (
        "ascii",
        {0x40: 0xC9, 0x5B: 0xC4, 0x5C: 0xD6, 0x5D: 0xC5, 0x5E: 0xDC, 0x60: 0xE9}
        | {0x7B: 0xE4, 0x7C: 0xF6, 0x7D: 0xE5, 0x7E: 0xFC, 0x7F: NONE},
    ),
    "tis620": ("tis_620", {}),
}
"""Python's codec, and the differences from it."""

_CONTROLS = " ".join(f"{code:x}" for code in range(0x80, 0xA0))
_OWN: Mapping[str, str] = {
    "armscii8": _CONTROLS
    + """
        a0 2741 a7 589 29 28 bb ab 2014 2e 55d 2c 2d 55f 2026 55c
        55b 55e 531 561 532 562 533 563 534 564 535 565 536 566 537 567
        538 568 539 569 53a 56a 53b 56b 53c 56c 53d 56d 53e 56e 53f 56f
        540 570 541 571 542 572 543 573 544 574 545 575 546 576 547 577
        548 578 549 579 54a 57a 54b 57b 54c 57c 54d 57d 54e 57e 54f 57f
        550 580 551 581 552 582 553 583 554 584 555 585 556 586 2019 27""",
    "geostd8": """
        20ac - 201a - 201e 2026 2020 2021 - 2030 - 2039 - - - -
        - 2018 2019 201c 201d 2022 2013 2014 - - - 203a - - - -
        a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 aa ab ac ad ae af
        b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 ba bb bc bd be bf
        10d0 10d1 10d2 10d3 10d4 10d5 10d6 10f1 10d7 10d8 10d9 10da 10db 10dc 10f2 10dd
        10de 10df 10e0 10e1 10e2 10f3 10e3 10e4 10e5 10e6 10e7 10e8 10e9 10ea 10eb 10ec
        10ed 10ee 10f4 10ef 10f0 10f5 - - - - - - - - - -
        - - - - - - - - - - - - - 2116 - -""",
    "keybcs2": """
        10c fc e9 10f e4 10e 164 10d 11b 11a 139 cd 13e 13a c4 c1
        c9 17e 17d f4 f6 d3 16f da fd d6 dc 160 13d dd 158 165
        e1 ed f3 fa 148 147 16e d4 161 159 155 154 bc a1 ab bb
        2591 2592 2593 2502 2524 2561 2562 2556 2555 2563 2551 2557 255d 255c 255b 2510
        2514 2534 252c 251c 2500 253c 255e 255f 255a 2554 2569 2566 2560 2550 256c 2567
        2568 2564 2565 2559 2558 2552 2553 256b 256a 2518 250c 2588 2584 258c 2590 2580
        3b1 df 393 3c0 3a3 3c3 b5 3c4 3a6 398 3a9 3b4 221e 3c6 3b5 2229
        2261 b1 2265 2264 2320 2321 f7 2248 b0 2219 b7 221a 207f b2 25a0 a0""",
}
"""The code points of 0x80 to 0xFF, ASCII below, where Python has no codec."""

_NEC_ROW_13 = """
    2460 2461 2462 2463 2464 2465 2466 2467 2468 2469 246a 246b 246c 246d 246e 246f
    2470 2471 2472 2473 2160 2161 2162 2163 2164 2165 2166 2167 2168 2169 - 3349
    3314 3322 334d 3318 3327 3303 3336 3351 3357 330d 3326 3323 332b 334a 333b 339c
    339d 339e 338e 338f 33c4 33a1 - - - - - - - - 337b 301d
    301f 2116 33cd 2121 32a4 32a5 32a6 32a7 32a8 3231 3232 3239 337e 337d 337c 2252
    2261 222b 222e 2211 221a 22a5 2220 221f 22bf 2235 2229 222a"""
_IBM_F3 = "2170 2171 2172 2173 2174 2175 2176 2177 2178 2179 2160 2161"
_IBM_F4 = """
    2162 2163 2164 2165 2166 2167 2168 2169 ff07 ff02 3231 2116 2121 70bb 4efc 50f4
    51ec 5307 5324 fa0e 548a 5759 fa0f fa10 589e 5bec 5cf5 5d53 fa11 5fb7 6085 6120
    654e 663b 6665 fa12 f929 6801 fa13 fa14 6a6b 6ae2 6df8 6df2 7028 fa15 fa16 7501
    7682 769e fa17 7930 fa18 fa19 fa1a fa1b 7ae7 fa1c fa1d 7da0 7dd6 fa1e 8362 fa1f
    85b0 fa20 fa21 8807 fa22 8b7f 8cf4 8d76 fa23 fa24 fa25 90de fa26 9115 fa27 fa28
    9592 f9dc fa29 973b 974d 9751 fa2a fa2b fa2c 999e 9ad9 9b72 fa2d 9ed1"""

_DOUBLE: Mapping[str, tuple[str, Mapping[int, int]]] = {
    "big5": (
        "big5",
        _numbered(0xF9D6, "7881 92b9 88cf 58bb 6052 7ca7 5afa")
        | _none(0xA15A, 0xA1C3, 0xA1C5, 0xA1FE, 0xA240, 0xA2CC, 0xA2CE),
    ),
    "cp932": ("cp932", _none(0x80, 0xA0, 0xFD, 0xFE, 0xFF)),
    "eucjpms": (
        _EUC_JP,
        {0xA1C1: 0xFF5E, 0xA1C2: 0x2225, 0xA1DD: 0xFF0D, 0xA1F1: 0xFFE0, 0xA1F2: 0xFFE1}
        | {0xA2CC: 0xFFE2, 0x1A2B7: 0xFF5E, 0x1A2C3: 0xFFE4}
        | _numbered(0xADA1, _NEC_ROW_13)
        | _numbered(0x1F3F3, _IBM_F3)
        | _numbered(0x1F4A1, _IBM_F4)
        | _private_use(),
    ),
    "euckr": ("cp949", {}),
    "gb2312": ("gb2312", {}),
    "gbk": ("gbk", {}),
    "sjis": ("shift_jis", {0x815F: 0x5C}),
    "ujis": (_EUC_JP, {0xA1C0: 0x5C} | _private_use()),
}
