"""Ids of 32 bits against snapshots of 64."""

from __future__ import annotations

import numpy as np

from tideline_capture.core.facts import Snapshot
from tideline_capture.core.visibility import UnseenTransactions, invisible

WRAPPED = 5 << 32


def hidden(ids: list[int], snapshot: Snapshot) -> list[int]:
    found: list[int] = invisible(np.array(ids, np.int64), snapshot).tolist()
    return found


def test_running_and_later_ones_are_invisible() -> None:
    assert hidden([9, 10, 11, 12, 13], Snapshot(10, 13, (10, 12))) == [10, 12, 13]


def test_ids_are_compared_around_a_wrap() -> None:
    low = (1 << 32) - 3
    just_after = Snapshot(WRAPPED + 2, WRAPPED + 2, ())
    assert hidden([low, 0, 1, 2, 3], just_after) == [2, 3]
    just_before = Snapshot(WRAPPED - 3, WRAPPED - 2, ())
    assert hidden([low - 1, low, low + 1, 5], just_before) == [low + 1, 5]
    running = Snapshot(WRAPPED - 3, WRAPPED + 5, (WRAPPED - 3, WRAPPED + 1))
    assert hidden([low, low + 1, 1, 2], running) == [low, 1]


def test_what_a_snapshot_shows_is_forgotten() -> None:
    unseen = UnseenTransactions(limit=10)
    unseen.committed(np.array([1, 2, 3], np.int64))
    unseen.shown(Snapshot(2, 4, (2,)))
    assert unseen.at_low_watermark().tolist() == [2]
    unseen.committed(np.array([3, 5], np.int64))
    assert unseen.at_low_watermark().tolist() == [2, 5]


def test_above_the_limit_only_a_fence_helps() -> None:
    unseen = UnseenTransactions(limit=2)
    unseen.fenced()
    unseen.committed(np.array([1, 2, 3], np.int64))
    assert not unseen.complete
    unseen.at_low_watermark()
    unseen.fenced()
    assert unseen.complete


def test_a_fence_does_not_cover_what_was_dropped_after_its_low_mark() -> None:
    unseen = UnseenTransactions(limit=2)
    unseen.at_low_watermark()
    unseen.committed(np.array([1, 2, 3], np.int64))
    unseen.fenced()
    assert not unseen.complete
