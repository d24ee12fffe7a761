"""A server that was restored from a copy of its disk: its table of marks knows less than the chain.

The real thing is `tests/spark/test_restored.py`; here is only what the clocks are taken to say.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.unit.contract.documents import first_manifest
from tideline.contract.errors import SourceLost
from tideline.contract.manifest import Manifest
from tideline.settings import make_settings
from tideline_capture.sources.mysql import source as module
from tideline_capture.sources.mysql.source import MysqlSource
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
    monkeypatch: pytest.MonkeyPatch, written: int | None, read: int | None, lost: bool
) -> None:
    check(monkeypatch, written, first_manifest(source_time_us=read), lost=lost)


def test_a_time_to_come_that_was_once_believed_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chains from before clocks were bounded may have heard of one."""
    tail = first_manifest(source_time_us=READ_US + 1_440 * MINUTE_US, written_at_us=READ_US)
    check(monkeypatch, READ_US, tail, lost=False)


class Cursor:
    def __init__(self, row: tuple[int] | None) -> None:
        self._row = row

    def execute(self, query: str, values: tuple[str]) -> None:
        assert values == ("5f0c",)

    def fetchone(self) -> tuple[int] | None:
        return self._row


@pytest.mark.parametrize(
    ("row", "said"), [(None, None), ((READ_US,), READ_US), ((0,), None), ((-1,), None)]
)
def test_a_row_that_tells_of_no_time(row: tuple[int] | None, said: int | None) -> None:
    """Somebody else wrote it: no worker is stopped by that."""
    assert last_clock(Cursor(row), watermark_table("tideline"), "5f0c") == said


def check(
    monkeypatch: pytest.MonkeyPatch, written: int | None, tail: Manifest, *, lost: bool
) -> None:
    asked: list[str] = []

    def stand_in(cursor: object, table: object, incarnation: str) -> int | None:
        asked.append(incarnation)
        return written

    monkeypatch.setattr(module, "last_clock", stand_in)
    settings = make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "mysql://nobody@127.0.0.1:1/", "tables": ["shop.*"]},
            "store": {"url": "memory://marks"},
            "warehouse": {"url": "file:///warehouse"},
        }
    )
    with pytest.raises(SourceLost, match="marks") if lost else nullcontext():
        MysqlSource(settings)._check_marks(None, tail)
    assert asked == [tail.incarnation]
