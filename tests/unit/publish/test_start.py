"""Places of the chain as people name them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fixtures.parts import HEARTBEAT_US, History
from tests.fixtures.publishing import history_of_pairs, orders, published
from tests.support.each import each
from tideline.contract.errors import Misconfigured
from tideline_publish.start import StartPlace

T = "public.t"


@pytest.fixture
def history(tmp_path: Path) -> History:
    return history_of_pairs(tmp_path)


def behind(history: History, text: str) -> list[int]:
    """The sequences of the events behind a place."""
    position = StartPlace.parse(text).find(history.chain)
    return [seq for seq, _ in orders(published(history, position))]


def test_each_place_has_all_behind_it_and_nothing_before(history: History) -> None:
    assert behind(history, "beginning") == list(range(2, 10))
    assert behind(history, "now") == []
    for number in range(6):
        assert behind(history, f"manifest:{number}") == list(range(max(2, 2 * number), 10))
    for seq in range(10):
        assert behind(history, f"sequence:{seq}") == list(range(max(2, seq + 1), 10))


def test_behind_a_time_nothing_that_is_later_is_left_out(history: History) -> None:
    """A manifest's heartbeat comes before its changes, as far as anyone knows."""

    def at(seconds: float) -> str:
        us = HEARTBEAT_US + round(seconds * 1_000_000)
        return f"time:{datetime.fromtimestamp(us / 1_000_000, UTC).isoformat()}"

    assert behind(history, at(-5)) == list(range(2, 10))
    assert behind(history, at(3)) == behind(history, "manifest:2")
    assert behind(history, at(3.9)) == behind(history, "manifest:2")
    assert behind(history, at(4)) == behind(history, "manifest:3")
    assert behind(history, at(99)) == behind(history, "manifest:4")


def test_a_time_without_a_zone_is_utc() -> None:
    assert StartPlace.parse("time:1970-01-01T00:00:01").number == 1_000_000
    assert StartPlace.parse("time:1970-01-01T01:00:01+01:00").number == 1_000_000


@each(
    "text",
    ("", "end", "sequence", "sequence:", "sequence:x", "manifest:-1", "time:", "time:2026-99-01"),
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured) as error:
        StartPlace.parse(text)
    assert "sequence:N" in str(error.value.hint)


def test_what_the_chain_has_not_is_refused(history: History) -> None:
    for text in ("manifest:6", "sequence:10"):
        with pytest.raises(Misconfigured, match="the chain ends at"):
            StartPlace.parse(text).find(history.chain)


def test_without_a_chain_there_is_no_place(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="nothing is captured yet"):
        StartPlace.parse("now").find(History(tmp_path).chain)
