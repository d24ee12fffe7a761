"""Positions: PostgreSQL's text of them, and their order."""

from __future__ import annotations

import pytest

from tideline.contract.position import PostgresPosition, format_lsn, parse_lsn


@pytest.mark.parametrize(
    ("lsn", "text"),
    [(0, "0/0"), (0x16_B374_D848, "16/B374D848"), (2**64 - 1, "FFFFFFFF/FFFFFFFF")],
)
def test_text(lsn: int, text: str) -> None:
    assert format_lsn(lsn) == text == str(PostgresPosition(lsn))
    assert parse_lsn(text) == lsn
    assert parse_lsn(text.lower()) == lsn


def test_order_is_by_number_and_not_by_text() -> None:
    assert PostgresPosition(parse_lsn("9/0")) < PostgresPosition(parse_lsn("10/0"))
