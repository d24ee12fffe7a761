"""A server that was restored from a copy of its disk: its table of watermarks knows less than the
chain.

The real thing is `tests/spark/test_restored.py`; here is only what the clocks are taken to say.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.unit.contract.documents import first_manifest
from tideline.contract.errors import SourceLost
from tideline.contract.manifest import Manifest
from tideline_capture.sources.mysql.checks.server_log import check_watermarks
from tideline_capture.sources.mysql.watermarks import last_clock, watermark_table

READ_US = 1_700_000_000_000_000
MINUTE_US = 60_000_000


@pytest.mark.parametrize(
    ("written", "read", "lost"),
    [
        (READ_US, READ_US, False),
        (READ_US + 1, READ_US, False),
        # A clock that was set back a little.
        (READ_US - MINUTE_US, READ_US, False),
        (READ_US - MINUTE_US - 1, READ_US, True),
        # Somebody dropped the table, as errors about its form say; or no mark was read so far.
        (None, READ_US, False),
        (5, None, False),
    ],
)
def test_marks_that_are_older_than_what_was_read(
    written: int | None, read: int | None, lost: bool
) -> None:
    check(written, first_manifest(source_time_us=read), lost=lost)


def test_a_time_to_come_that_was_once_believed_counts_for_nothing() -> None:
    """Chains from before clocks were bounded may have heard of one."""
    tail = first_manifest(source_time_us=READ_US + 1_440 * MINUTE_US, written_at_us=READ_US)
    check(READ_US, tail, lost=False)


class Cursor:
    def __init__(self, row: tuple[int] | None, incarnation: str = "5f0c") -> None:
        self._row = row
        self._incarnation = incarnation
        self.asked = False

    def execute(self, query: str, values: tuple[str]) -> None:
        assert values == (self._incarnation,)
        self.asked = True

    def fetchone(self) -> tuple[int] | None:
        return self._row


@pytest.mark.parametrize(
    ("row", "reported"), [(None, None), ((READ_US,), READ_US), ((0,), None), ((-1,), None)]
)
def test_a_row_that_tells_of_no_time(row: tuple[int] | None, reported: int | None) -> None:
    """Somebody else wrote it: no worker is stopped by that."""
    assert last_clock(Cursor(row), watermark_table("tideline"), "5f0c") == reported


def check(written: int | None, tail: Manifest, *, lost: bool) -> None:
    cursor = Cursor(None if written is None else (written,), incarnation=tail.incarnation)
    with pytest.raises(SourceLost, match="marks") if lost else nullcontext():
        check_watermarks(cursor, watermark_table("tideline"), tail)
    assert cursor.asked
