"""GTID sets: texts, arithmetic and encodings, by the servers' own examples."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.binlog.gtid import GtidSet, MariadbGtids

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCE = uuid.UUID(A)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (f"{A}:1", f"{A}:1"),
        (f"{A}:1-3:5:4", f"{A}:1-5"),
        (f"{A}:7-9:1-3:3-4", f"{A}:1-4:7-9"),
        (f" {B.upper()} : 2 - 3 ,\n{A}:1 ", f"{A}:1,\n{B}:2-3"),
        (f"{A}:1,{A}:2", f"{A}:1-2"),
        (f"{A}:1-5:Green:3:4:_x9:1", f"{A}:1-5:_x9:1:green:3-4"),
        (f"{A}:green:1,{A}:9", f"{A}:9:green:1"),
        (A.replace("-", "") + ":1", f"{A}:1"),
        (f"{A}:9223372036854775806", f"{A}:9223372036854775806"),
    ],
)
def test_a_text_becomes_the_servers_own(text: str, canonical: str) -> None:
    assert str(GtidSet.parse(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        A,
        f"{A}:",
        f"{A}:0",
        f"{A}:3-2",
        f"{A}:-1",
        "x:1",
        f"{A}:9x:1",
        f"{A}:{'t' * 33}:1",
        f"{A}:9223372036854775807",
        f"{A}:1-2-3",
        f"{A}:ä:1",
    ],
)
def test_what_is_no_set_is_refused(text: str) -> None:
    with pytest.raises(CorruptData):
        GtidSet.parse(text)


def test_adding_one_by_one_and_many_at_once_agree() -> None:
    numbers = np.array([5, 1, 2, 3, 9, 10, 2, 4], dtype=np.int64)
    many, single = GtidSet.parse(f"{A}:11-12"), GtidSet.parse(f"{A}:11-12")
    many.add_many(SOURCE, "", numbers)
    for number in numbers.tolist():
        single.add(SOURCE, "", number)
    assert str(many) == str(single) == f"{A}:1-5:9-12"
    many.add_many(SOURCE, "tag", numbers[:0])
    assert many == single
    assert len(many) == 9


def test_a_tag_is_another_sequence() -> None:
    executed = GtidSet.parse(f"{A}:1-5:tag:1-2")
    assert executed.holds(SOURCE, "", 5)
    assert not executed.holds(SOURCE, "", 6)
    assert not executed.holds(SOURCE, "tag", 3)
    assert not executed.holds(uuid.UUID(B), "", 1)


@pytest.mark.parametrize(
    ("left", "right", "rest"),
    [
        ("1-10", "3-4:8", "1-2:5-7:9-10"),
        ("1-10", "1-10", ""),
        ("1-10", "5-20", "1-4"),
        ("5-10:20", "1-5:10-20", "6-9"),
        ("1-3", "4-9", "1-3"),
    ],
)
def test_subtracting(left: str, right: str, rest: str) -> None:
    one, other = GtidSet.parse(f"{A}:{left}"), GtidSet.parse(f"{A}:{right}")
    assert str(one.subtract(other)) == (f"{A}:{rest}" if rest else "")
    assert other.contains(one) == (not rest)


def test_a_copy_grows_by_itself() -> None:
    executed = GtidSet.parse(f"{A}:1")
    copied = executed.copy()
    copied.add(SOURCE, "", 2)
    copied.update(GtidSet.parse(f"{B}:7,{A}:3"))
    assert str(executed) == f"{A}:1"
    assert str(copied) == f"{A}:1-3,\n{B}:7"
    assert executed and not GtidSet()


def test_the_encoding_without_tags() -> None:
    encoded = GtidSet.parse(f"{A}:1-5:9").encode()
    assert encoded[:8] == (1).to_bytes(8, "little")
    assert encoded[8:24] == SOURCE.bytes
    assert np.frombuffer(encoded[24:], "<u8").tolist() == [2, 1, 6, 9, 10]


def test_the_encoding_with_tags_gives_every_set_a_tag() -> None:
    encoded = GtidSet.parse(f"{A}:1:tag:2").encode()
    assert encoded[:8] == bytes((1, 2, 0, 0, 0, 0, 0, 1))
    assert encoded[8:25] == SOURCE.bytes + b"\0"
    assert encoded[25 + 24 :][:20] == SOURCE.bytes + b"\x06tag"
    assert str(GtidSet.decode(encoded)) == f"{A}:1:tag:2"


@pytest.mark.parametrize("cut", [1, 7, 8, 20, 30, 55])
def test_an_encoding_that_ends_early_is_refused(cut: int) -> None:
    encoded = GtidSet.parse(f"{A}:1-5:9").encode()
    with pytest.raises(CorruptData):
        GtidSet.decode(encoded[:cut])


def test_encodings_that_say_what_cannot_be_are_refused() -> None:
    encoded = GtidSet.parse(f"{A}:1-5").encode()
    with pytest.raises(CorruptData):
        GtidSet.decode(encoded + b"\0")
    with pytest.raises(CorruptData, match="unknown form"):
        GtidSet.decode(encoded[:7] + b"\2" + encoded[8:])
    backwards = encoded[:-16] + (6).to_bytes(8, "little") + (1).to_bytes(8, "little")
    with pytest.raises(CorruptData):
        GtidSet.decode(backwards)


def test_mariadbs_position_keeps_the_last_of_every_domain() -> None:
    gtids = MariadbGtids.parse("7-1-5, 0-2-100")
    assert str(gtids) == "0-2-100,7-1-5"
    gtids.advance(7, 3, 4)
    gtids.advance(9, 1, 1)
    assert str(gtids) == "0-2-100,7-3-4,9-1-1"
    assert gtids == MariadbGtids.parse(str(gtids))
    assert not MariadbGtids.parse("")


@pytest.mark.parametrize(
    ("mine", "other", "covered"),
    [
        ("0-1-5", "0-2-5", True),
        ("0-1-5", "0-1-6", False),
        ("0-1-5", "0-1-1,1-1-1", False),
        ("0-1-5,1-1-1", "0-1-1", True),
        ("", "", True),
        ("0-1-1", "", True),
    ],
)
def test_mariadbs_position_covers_another(mine: str, other: str, covered: bool) -> None:
    assert MariadbGtids.parse(mine).covers(MariadbGtids.parse(other)) is covered


@pytest.mark.parametrize("text", ["0-1", "0-1-x", "0-1-1,0-2-2", "a", "0-1-1;0-1-1", "-1-1-1"])
def test_what_is_no_position_of_mariadb_is_refused(text: str) -> None:
    with pytest.raises(CorruptData):
        MariadbGtids.parse(text)
