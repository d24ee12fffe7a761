"""Pauses grow to their limit, however often something fails."""

from __future__ import annotations

from tideline.contract.pauses import growing_pause_s


def test_it_doubles_up_to_its_limit() -> None:
    found = [growing_pause_s(failures, first_s=1.0, most_s=60.0) for failures in range(8)]
    assert found == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert growing_pause_s(100_000, first_s=0.5, most_s=60.0) == 60.0
