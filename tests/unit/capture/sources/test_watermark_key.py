"""Signatures of marks: what one session wrote, nobody else can, and the secret is nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline_capture.core.events import UnknownWatermark, Watermark, WatermarkKind
from tideline_capture.sources.mysql.watermarks import PROBE_ROW, parse_watermark
from tideline_capture.sources.postgres.watermarks import PREFIX
from tideline_capture.sources.postgres.watermarks import parse_watermark as parse_message
from tideline_capture.sources.watermark_key import CLOCK_MAX_US, WatermarkKey

KEY = WatermarkKey("5f0c6a3e9b1d4c7e8a2f0b6d4e1c9a73")
TOKEN = "0123456789abcdef0123456789abcdef"
CLOCK_US = 1_764_000_000_000_000


def row(
    mark: WatermarkKind, at: str, clock: int, *, writer: str = "", **other: object
) -> dict[str, Any]:
    """A row as we write it, but for the ``other`` columns."""
    signature = KEY.sign(mark, at, clock)
    made: dict[str, object] = {
        "incarnation": f"{KEY.incarnation}{writer and PROBE_ROW}{writer}",
        "kind": mark.value,
        "token": f"{at}:{signature}",
        "clock_us": clock,
    }
    return made | other


def test_the_session_knows_its_own_marks() -> None:
    for kind in WatermarkKind:
        signature = KEY.sign(kind, TOKEN, CLOCK_US)
        assert len(signature) == 20
        assert KEY.opened(kind.value, TOKEN, str(CLOCK_US), signature) == Watermark(
            kind, TOKEN, CLOCK_US
        )


def test_no_other_session_does() -> None:
    signature = KEY.sign(WatermarkKind.HEARTBEAT, TOKEN, CLOCK_US)
    other = WatermarkKey(KEY.incarnation)
    assert other.opened("B", TOKEN, str(CLOCK_US), signature) is None
    assert other.sign(WatermarkKind.HEARTBEAT, TOKEN, CLOCK_US) != signature


def test_a_signature_is_of_one_mark() -> None:
    signature = KEY.sign(WatermarkKind.HEARTBEAT, TOKEN, CLOCK_US)
    assert KEY.opened("H", TOKEN, str(CLOCK_US), signature) is None
    assert KEY.opened("B", TOKEN[:-1], str(CLOCK_US), signature) is None
    assert KEY.opened("B", TOKEN, str(CLOCK_US + 1), signature) is None
    assert KEY.opened("B", TOKEN, f"0{CLOCK_US}", signature) is None


def test_no_clock_is_believed_beyond_what_calendars_have() -> None:
    for clock_us in (CLOCK_MAX_US, 9 * 10**18, -1):
        signature = KEY.sign(WatermarkKind.HEARTBEAT, TOKEN, clock_us)
        assert KEY.opened("B", TOKEN, str(clock_us), signature) is None


def test_the_secret_is_in_no_text_of_it() -> None:
    secret = KEY._secret
    assert len(secret) == 32
    for text in (repr(KEY), str(KEY), KEY.sign(WatermarkKind.LOW, TOKEN, 0)):
        assert secret.hex() not in text and repr(secret) not in text


@given(st.lists(st.text(max_size=40), min_size=4, max_size=4))
def test_whatever_is_given_nothing_is_raised(texts: list[str]) -> None:
    assert KEY.opened(*texts) is None


@given(st.binary(max_size=80), st.booleans())
def test_whatever_a_message_holds_nothing_is_raised(content: bytes, ours: bool) -> None:
    reported = KEY.incarnation.encode() + b" " + content if ours else content
    assert parse_message(PREFIX, reported, KEY) == (UnknownWatermark() if ours else None)


class TestRows:
    """The table of watermarks, which others may be allowed to write."""

    def test_our_own(self) -> None:
        assert parse_watermark(row(WatermarkKind.LOW, TOKEN, 0), KEY) == Watermark(
            WatermarkKind.LOW, TOKEN, 0
        )
        probe = f"{TOKEN}.1.77"
        made = row(WatermarkKind.PROBE, probe, 0, writer="1")
        assert parse_watermark(made, KEY) == Watermark(WatermarkKind.PROBE, probe, 0)

    def test_the_longest_token_has_room_for_its_signature(self) -> None:
        made = row(WatermarkKind.PROBE, f"{TOKEN}.2.9999999", 0, writer="2")
        assert len(made["token"]) <= 64

    @pytest.mark.parametrize(
        "made",
        [
            row(WatermarkKind.PROBE, "bad", 0, writer="1"),
            row(WatermarkKind.PROBE, f"{TOKEN}.1.x", 9 * 10**18, writer="1"),
            row(WatermarkKind.PROBE, f"{TOKEN}.1.5", 0, writer="2"),
            row(WatermarkKind.PROBE, f"{TOKEN}.1.5", 0),
            row(WatermarkKind.HIGH, TOKEN, CLOCK_US, writer="1"),
            row(WatermarkKind.HIGH, TOKEN, CLOCK_US, clock_us=CLOCK_US + 1),
            row(WatermarkKind.HIGH, TOKEN, CLOCK_US, clock_us=None),
            row(WatermarkKind.HIGH, TOKEN, CLOCK_US, clock_us="soon"),
            row(WatermarkKind.HIGH, TOKEN, CLOCK_US, kind="?"),
            row(WatermarkKind.HIGH, TOKEN, CLOCK_US, kind=3),
            row(WatermarkKind.HIGH, TOKEN, CLOCK_US, token=TOKEN),
            row(WatermarkKind.HIGH, TOKEN, CLOCK_US, token=None),
            {"incarnation": KEY.incarnation},
        ],
    )
    def test_what_is_not_as_we_write_it_is_strange(self, made: dict[str, object]) -> None:
        assert parse_watermark(made, KEY) == UnknownWatermark()

    def test_rows_of_others_are_nothing(self) -> None:
        for owner in ("other", "", None, 7):
            assert parse_watermark(row(WatermarkKind.LOW, TOKEN, 0, incarnation=owner), KEY) is None
