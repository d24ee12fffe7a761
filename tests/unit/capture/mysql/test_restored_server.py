"""A server that was restored from a copy of its disk: its table of marks knows less than the chain.

The real thing is `tests/spark/test_restored.py`; here is only what the clocks are taken to say.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from capture.sources.mysql import source as module
from capture.sources.mysql.source import MysqlSource
from tests.unit.contract.documents import first_manifest
from tideline.contract.errors import SourceLost
from tideline.settings import make_settings

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
    asked: list[str] = []

    def last_clock(cursor: object, table: object, incarnation: str) -> int | None:
        asked.append(incarnation)
        return written

    monkeypatch.setattr(module, "last_clock", last_clock)
    tail = first_manifest(source_time_us=read)
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
