"""Marks by place: where the reader stands when their time has come."""

from __future__ import annotations

from tideline.contract.position import MysqlPosition
from tideline_capture.core.events import Mark, MarkKind
from tideline_capture.sources.mysql.board import WatermarkRegistry


def at(offset: int) -> MysqlPosition:
    return MysqlPosition("binlog.000003", offset)


LOW, HIGH = Mark(MarkKind.LOW, "a", 0), Mark(MarkKind.HIGH, "a", 5)


def test_a_mark_is_placed_once_and_only_where_it_may_be() -> None:
    board = WatermarkRegistry()
    low = board.ask(LOW, lambda position: True)
    high = board.ask(HIGH, lambda position: position.order >= at(500).order)
    assert board.has_place(at(100))
    assert board.place(at(100)) == (LOW,)
    assert (low.placed.is_set(), low.position) == (True, at(100))
    assert not board.has_place(at(400))
    assert board.place(at(400)) == ()
    assert not high.placed.is_set()
    assert board.place(at(500)) == (HIGH,)
    assert board.empty


def test_marks_of_one_place_keep_their_order() -> None:
    board = WatermarkRegistry()
    marks = [Mark(MarkKind.LOW, str(number), 0) for number in range(5)]
    for mark in marks:
        board.ask(mark, lambda position: True)
    assert board.place(at(7)) == tuple(marks)
