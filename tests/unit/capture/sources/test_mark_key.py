"""Signatures of marks: what one session wrote, nobody else can, and the secret is nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline_capture.core.events import Mark, MarkKind, StrangeMark
from tideline_capture.sources.mark_key import CLOCK_MAX_US, SIGNATURE_CHARS, MarkKey
from tideline_capture.sources.mysql.watermarks import LANE, parse_mark
from tideline_capture.sources.postgres.watermarks import PREFIX
from tideline_capture.sources.postgres.watermarks import parse_mark as parse_message

KEY = MarkKey("5f0c6a3e9b1d4c7e8a2f0b6d4e1c9a73")
TOKEN = "0123456789abcdef0123456789abcdef"
CLOCK_US = 1_764_000_000_000_000


def row(mark: MarkKind, at: str, clock: int, *, lane: str = "", **other: object) -> dict[str, Any]:
    """A row as we write it, but for the ``other`` columns."""
    signature = KEY.sign(mark, at, clock)
    made: dict[str, object] = {
        "incarnation": f"{KEY.incarnation}{lane and LANE}{lane}",
        "kind": mark.value,
        "token": f"{at}:{signature}",
        "clock_us": clock,
    }
    return made | other


def test_the_session_knows_its_own_marks() -> None:
    for kind in MarkKind:
        signature = KEY.sign(kind, TOKEN, CLOCK_US)
        assert len(signature) == SIGNATURE_CHARS
        assert KEY.opened(kind.value, TOKEN, str(CLOCK_US), signature) == Mark(
            kind, TOKEN, CLOCK_US
        )


def test_no_other_session_does() -> None:
    signature = KEY.sign(MarkKind.HEARTBEAT, TOKEN, CLOCK_US)
    other = MarkKey(KEY.incarnation)
    assert other.opened("B", TOKEN, str(CLOCK_US), signature) is None
    assert other.sign(MarkKind.HEARTBEAT, TOKEN, CLOCK_US) != signature


def test_a_signature_is_of_one_mark() -> None:
    signature = KEY.sign(MarkKind.HEARTBEAT, TOKEN, CLOCK_US)
    assert KEY.opened("H", TOKEN, str(CLOCK_US), signature) is None
    assert KEY.opened("B", TOKEN[:-1], str(CLOCK_US), signature) is None
    assert KEY.opened("B", TOKEN, str(CLOCK_US + 1), signature) is None
    assert KEY.opened("B", TOKEN, f"0{CLOCK_US}", signature) is None


def test_no_clock_is_believed_beyond_what_calendars_have() -> None:
    for clock_us in (CLOCK_MAX_US, 9 * 10**18, -1):
        signature = KEY.sign(MarkKind.HEARTBEAT, TOKEN, clock_us)
        assert KEY.opened("B", TOKEN, str(clock_us), signature) is None


def test_the_secret_is_in_no_text_of_it() -> None:
    secret = KEY._secret
    assert len(secret) == 32
    for text in (repr(KEY), str(KEY), KEY.sign(MarkKind.LOW, TOKEN, 0)):
        assert secret.hex() not in text and repr(secret) not in text


@given(st.lists(st.text(max_size=40), min_size=4, max_size=4))
def test_whatever_is_given_nothing_is_raised(texts: list[str]) -> None:
    assert KEY.opened(*texts) is None


@given(st.binary(max_size=80), st.booleans())
def test_whatever_a_message_holds_nothing_is_raised(content: bytes, ours: bool) -> None:
    said = KEY.incarnation.encode() + b" " + content if ours else content
    assert parse_message(PREFIX, said, KEY) == (StrangeMark() if ours else None)


class TestRows:
    """The table of marks, which others may be allowed to write."""

    def test_our_own(self) -> None:
        assert parse_mark(row(MarkKind.LOW, TOKEN, 0), KEY) == Mark(MarkKind.LOW, TOKEN, 0)
        pulse = f"{TOKEN}.1.77"
        made = row(MarkKind.PULSE, pulse, 0, lane="1")
        assert parse_mark(made, KEY) == Mark(MarkKind.PULSE, pulse, 0)

    def test_the_longest_token_has_room_for_its_signature(self) -> None:
        made = row(MarkKind.PULSE, f"{TOKEN}.2.9999999", 0, lane="2")
        assert len(made["token"]) <= 64

    @pytest.mark.parametrize(
        "made",
        [
            row(MarkKind.PULSE, "bad", 0, lane="1"),
            row(MarkKind.PULSE, f"{TOKEN}.1.x", 9 * 10**18, lane="1"),
            row(MarkKind.PULSE, f"{TOKEN}.1.5", 0, lane="2"),
            row(MarkKind.PULSE, f"{TOKEN}.1.5", 0),
            row(MarkKind.HIGH, TOKEN, CLOCK_US, lane="1"),
            row(MarkKind.HIGH, TOKEN, CLOCK_US, clock_us=CLOCK_US + 1),
            row(MarkKind.HIGH, TOKEN, CLOCK_US, clock_us=None),
            row(MarkKind.HIGH, TOKEN, CLOCK_US, clock_us="soon"),
            row(MarkKind.HIGH, TOKEN, CLOCK_US, kind="?"),
            row(MarkKind.HIGH, TOKEN, CLOCK_US, kind=3),
            row(MarkKind.HIGH, TOKEN, CLOCK_US, token=TOKEN),
            row(MarkKind.HIGH, TOKEN, CLOCK_US, token=None),
            {"incarnation": KEY.incarnation},
        ],
    )
    def test_what_is_not_as_we_write_it_is_strange(self, made: dict[str, object]) -> None:
        assert parse_mark(made, KEY) == StrangeMark()

    def test_rows_of_others_are_nothing(self) -> None:
        for owner in ("other", "", None, 7):
            assert parse_mark(row(MarkKind.LOW, TOKEN, 0, incarnation=owner), KEY) is None
