"""The statements of chunks, and values as literals."""

from __future__ import annotations

from typing import Any

import pytest

from tideline.contract.errors import CorruptData
from tideline.contract.request import TimeRange
from tideline.contract.schema import TableId
from tideline_capture.core.chunks import ChunkOrder
from tideline_capture.sources.mysql.names import qualified, quoted
from tideline_capture.sources.mysql.snapshot.chunk_query import MysqlChunkQuery
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn, MysqlTable
from tideline_capture.sources.mysql.types.literals import (
    NotAValue,
    key_literal,
    key_text,
    literal,
    typed,
)

ID = MysqlColumn("id", Code.LONGLONG, nullable=False)
NAME = MysqlColumn("na`me", Code.VARCHAR, charset="latin1")
KIND = MysqlColumn("kind", Code.ENUM, charset="utf8mb4", labels=("b", "a"))
RATIO = MysqlColumn("ratio", Code.FLOAT)
AT = MysqlColumn("at", Code.DATETIME2, fsp=6)


def query(key: tuple[MysqlColumn, ...], **fields: Any) -> MysqlChunkQuery:
    table = MysqlTable(
        TableId("shop", "t"), (ID, NAME, KIND, RATIO, AT), tuple(c.name for c in key)
    )
    values = {"rows_max": 9, "bytes_max": 1, **fields}
    return MysqlChunkQuery(ChunkOrder("token", "r", "shop.t", **values), table)


SELECT = "SELECT t.`id`, t.`na``me`, t.`kind`, t.`ratio` * 1E0, t.`at`"
FROM = " FROM `shop`.`t` t FORCE INDEX (PRIMARY)"


def test_names_are_quoted() -> None:
    assert quoted("a`b") == "`a``b`"
    assert qualified(TableId("a.b", "`")) == "`a.b`.````"


def test_the_first_chunk() -> None:
    assert query((ID,)).rows() == f"{SELECT}{FROM} ORDER BY t.`id` LIMIT 9"


def test_what_lies_behind_a_key_of_three() -> None:
    one = query((KIND, NAME, ID), after_key=("2", r"\xe9", "-7"))
    behind = (
        "(t.`kind` > 2 OR (t.`kind` = 2 AND (t.`na``me` > _latin1 X'e9'"
        " OR (t.`na``me` = _latin1 X'e9' AND (t.`id` > -7)))))"
    )
    order = "ORDER BY t.`kind`, t.`na``me`, t.`id` LIMIT 9"
    assert one.rows() == f"{SELECT}, CAST(t.`kind` AS UNSIGNED){FROM} WHERE {behind} {order}"
    assert one.width == 6
    assert one.key_of([b"-7", b"\xe9", b"a", b"1.5", None, b"2"]) == ("2", r"\xe9", "-7")


def test_a_set_with_more_labels_than_a_double_counts_is_compared_as_an_integer() -> None:
    wide = MysqlColumn("s", Code.SET, charset="latin1", labels=tuple(map(str, range(54))))
    table = MysqlTable(TableId("shop", "t"), (wide,), ("s",))
    order = ChunkOrder("token", "r", "shop.t", 1, 1, after_key=("5",))
    assert "(CAST(t.`s` AS UNSIGNED) > 5)" in MysqlChunkQuery(order, table).rows()


def test_asked_for_keys() -> None:
    assert query((ID,), keys=(("007",), ("8",))).rows() == f"{SELECT}{FROM} WHERE t.`id` IN (7, 8)"
    two = query((ID, NAME), keys=(("1", "é"), ("2", "b")))
    assert two.doubtful() == [("na`me", "é")]
    assert two.storable(two.doubtful()) == (
        "SELECT CAST(CONVERT(CONVERT(_utf8mb4 X'c3a9' USING latin1) USING utf8mb4) AS BINARY)"
        " = X'c3a9'"
    )
    first = "(t.`id` = 1 AND t.`na``me` = _utf8mb4 X'c3a9')"
    second = "(t.`id` = 2 AND t.`na``me` = _utf8mb4 X'62')"
    assert two.rows() == f"{SELECT}{FROM} WHERE {first} OR {second}"
    assert two.rows(frozenset({("na`me", "é")})) == f"{SELECT}{FROM} WHERE {second}"
    none = query((ID, NAME), keys=(("1", "é"),))
    assert none.rows(frozenset({("na`me", "é")})) == f"{SELECT}{FROM} WHERE FALSE"
    assert two.asked().to_pylist() == [{"id": 1, "na`me": "é"}, {"id": 2, "na`me": "b"}]


def test_a_time_range_leaves_the_choice_of_the_index_to_the_server() -> None:
    one = query((ID,), time=TimeRange("at", "2024-01-01", "2024-01-02T00:00:00Z"), after_key=("5",))
    assert one.rows() == (
        f"{SELECT} FROM `shop`.`t` t WHERE (t.`id` > 5) AND t.`at` >= '2024-01-01 00:00:00'"
        " AND t.`at` < '2024-01-02 00:00:00' ORDER BY t.`id` LIMIT 9"
    )


@pytest.mark.parametrize("last", [("x",), ("1", "2"), (r"\x31",), ("1 OR 1=1",), ()])
def test_a_last_key_of_another_definition_is_none(last: tuple[str, ...]) -> None:
    with pytest.raises(NotAValue):
        query((ID,), after_key=last).after()


def test_asked_for_keys_of_another_width_are_none() -> None:
    with pytest.raises(NotAValue):
        query((ID,), keys=(("1", "2"),)).asked()


def test_a_key_that_is_null_is_corrupt() -> None:
    with pytest.raises(CorruptData):
        query((ID,)).key_of([None, b"", b"", b"", b""])


def column(code: int, **fields: Any) -> MysqlColumn:
    return MysqlColumn("k", code, **fields)


LITERALS: list[tuple[MysqlColumn, str, str]] = [
    (column(Code.LONG), "+007", "7"),
    (column(Code.NEWDECIMAL, precision=5, scale=2), "-1.50", "-1.50"),
    (column(Code.FLOAT), "3.3", "3.299999952316284E0"),
    (column(Code.DOUBLE), "1e-300", "1e-300"),
    (column(Code.DOUBLE), "3.3", "3.3E0"),
    (column(Code.YEAR), "0", "'0000'"),
    (column(Code.BIT, length=4), "101", "5"),
    (column(Code.DATE), "2024-01-02T00:00:00.000Z", "'2024-01-02'"),
    (column(Code.DATETIME2), "0000-00-00", "'0000-00-00 00:00:00'"),
    (column(Code.DATETIME2, fsp=6), "2024-01-02 10:00:00.100000", "'2024-01-02 10:00:00.100000'"),
    (column(Code.TIMESTAMP2), "2024-01-01 01:00+02:00", "'2023-12-31 23:00:00.000000'"),
    (column(Code.TIMESTAMP2), "2024-01-01 01:00:00.5Z", "'2024-01-01 01:00:00.5'"),
    (column(Code.TIME2, fsp=2), "-1:02:03.5", "'-01:02:03.50'"),
    (column(Code.VARCHAR, charset="utf16"), "a'\\é", "_utf8mb4 X'61275cc3a9'"),
    (column(Code.VARCHAR, charset="latin1"), "", "_utf8mb4 X''"),
    (column(Code.ENUM, charset="latin1"), "a", "_utf8mb4 X'61'"),
    (column(Code.STRING, charset=BYTES, length=2), r"\x00FF", "X'00ff'"),
    (column(Code.STRING, charset=BYTES, native="inet6"), "FE80::1", "'fe80::1'"),
]


@pytest.mark.parametrize(("one", "text", "wanted"), LITERALS)
def test_literals(one: MysqlColumn, text: str, wanted: str) -> None:
    assert literal(text, one) == wanted


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (column(Code.LONG), "1; DROP TABLE t"),
        (column(Code.LONG), "٣"),
        (column(Code.NEWDECIMAL, precision=5, scale=2), "1e5"),
        (column(Code.DOUBLE), "inf"),
        (column(Code.FLOAT), "1e39"),
        (column(Code.YEAR), "20245"),
        (column(Code.BIT, length=4), "b'1'"),
        (column(Code.DATE), "2024-1-1"),
        (column(Code.DATETIME2), "2024-01-01 00:00:00+01:00"),
        (column(Code.TIMESTAMP2), "2024-13-01 00:00:00+01:00"),
        (column(Code.TIME2, fsp=1), "00:00:00.25"),
        (column(Code.VARCHAR, charset=BYTES), r"\x0"),
        (column(Code.STRING, charset=BYTES, native="uuid"), "' OR ''='"),
    ],
)
def test_what_is_no_literal(one: MysqlColumn, text: str) -> None:
    with pytest.raises(NotAValue):
        literal(text, one)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (column(Code.TINY), "128"),
        (column(Code.NEWDECIMAL, precision=5, scale=2), "1.234"),
        (column(Code.YEAR), "99999"),
    ],
)
def test_what_its_type_cannot_hold_is_not_typed(one: MysqlColumn, text: str) -> None:
    with pytest.raises(NotAValue):
        typed([text], one)


def test_a_day_of_no_calendar_is_typed_as_nothing() -> None:
    assert typed(["0000-00-00"], column(Code.DATE)).to_pylist() == [None]


KEPT: list[tuple[MysqlColumn, bytes, str, str]] = [
    (column(Code.LONG), b"00042", "00042", "42"),
    (column(Code.ENUM, charset="latin1"), b"3", "3", "3"),
    (column(Code.SET, charset="latin1"), b"0", "0", "0"),
    (column(Code.BIT, length=12), b"\x01\x00", "256", "256"),
    (column(Code.VARCHAR, charset="sjis"), b"\x83\x5c", r"\x835c", "_sjis X'835c'"),
    (column(Code.VARCHAR, charset=BYTES), b"", r"\x", "X''"),
    (column(Code.DATE), b"0000-00-00", "0000-00-00", "'0000-00-00'"),
    (column(Code.TIME2, fsp=6), b"-838:59:59.000000", "-838:59:59.000000", "'-838:59:59.000000'"),
    (column(Code.YEAR), b"0000", "0000", "'0000'"),
    (column(Code.STRING, charset=BYTES, native="inet4"), b"1.2.3.4", "1.2.3.4", "'1.2.3.4'"),
    (column(Code.FLOAT), b"9.999999680285692e37", "9.999999680285692e37", "9.999999680285692e+37"),
]


@pytest.mark.parametrize(("one", "raw", "text", "wanted"), KEPT)
def test_a_remembered_key_is_exact(one: MysqlColumn, raw: bytes, text: str, wanted: str) -> None:
    assert key_text(raw, one) == text
    assert key_literal(text, one) == wanted
