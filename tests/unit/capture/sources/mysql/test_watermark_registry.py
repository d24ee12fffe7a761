"""Watermarks by place: where the reader stands when their time has come."""

from __future__ import annotations

from tideline.contract.position import MysqlPosition
from tideline_capture.core.events import Watermark, WatermarkKind
from tideline_capture.sources.mysql.watermark_registry import WatermarkRegistry


def at(offset: int) -> MysqlPosition:
    return MysqlPosition("binlog.000003", offset)


LOW, HIGH = Watermark(WatermarkKind.LOW, "a", 0), Watermark(WatermarkKind.HIGH, "a", 5)


def test_a_mark_is_placed_once_and_only_where_it_may_be() -> None:
    registry = WatermarkRegistry()
    low = registry.ask(LOW, lambda position: True)
    high = registry.ask(HIGH, lambda position: position.order >= at(500).order)
    assert registry.is_awaited(at(100))
    assert registry.take_at(at(100)) == (LOW,)
    assert (low.placed.is_set(), low.position) == (True, at(100))
    assert not registry.is_awaited(at(400))
    assert registry.take_at(at(400)) == ()
    assert not high.placed.is_set()
    assert registry.take_at(at(500)) == (HIGH,)
    assert registry.empty


def test_marks_of_one_place_keep_their_order() -> None:
    registry = WatermarkRegistry()
    marks = [Watermark(WatermarkKind.LOW, str(number), 0) for number in range(5)]
    for mark in marks:
        registry.ask(mark, lambda position: True)
    assert registry.take_at(at(7)) == tuple(marks)
