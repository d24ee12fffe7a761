"""The page about publishing lists each difference from Debezium that the differential test has."""

from __future__ import annotations

from pathlib import Path

from tests.publish.debezium.differences import BINLOG, EVERYWHERE, POSTGRES

PAGE = Path(__file__).resolve().parents[5] / "docs" / "PUBLISHING.md"


def test_each_difference_is_on_the_page() -> None:
    text = " ".join(PAGE.read_text().split())
    reasons = [one.reason for one in (*EVERYWHERE, *POSTGRES, *BINLOG)]
    assert [one for one in reasons if one not in text] == []
