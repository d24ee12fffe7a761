"""What an error of the server means for a chunk: tried again, or the end of its request."""

from __future__ import annotations

from typing import Any, cast

import pymysql
import pytest

from tideline_capture.core.chunks import ChunkFailed, ChunkOrder
from tideline_capture.core.events import WatermarkKind
from tideline_capture.sources.mysql.snapshot.chunks import RowChunkReader
from tideline_capture.sources.mysql.watermark_writer import WatermarkWriter

ORDER = ChunkOrder("token", "r", "shop.t", 10, 1 << 20)


class NoMarks:
    def write(self, kind: WatermarkKind, token: str) -> None:
        """Nobody reads them."""


class Failing:
    """A connection that stays open and answers everything with the error ``number``."""

    open = True

    def __init__(self, number: int) -> None:
        self._number = number

    def cursor(self) -> Any:
        raise pymysql.InternalError(self._number, "Table is marked as crashed")


@pytest.mark.parametrize(
    ("number", "retry"), [(145, True), (1034, True), (1194, True), (1205, True), (1064, False)]
)
def test_a_damaged_table_is_waited_for(number: int, retry: bool) -> None:
    reads = Failing(number)
    marks = cast(WatermarkWriter, NoMarks())
    reader = RowChunkReader(marks, reads, flavour="mariadb", lock_timeout_s=1, holds_xa=False)
    reported = reader.fetch(ORDER, lambda reason: None)
    assert isinstance(reported, ChunkFailed)
    assert reported.retry is retry
