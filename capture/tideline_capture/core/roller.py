"""When a segment closes. Only between transactions; inside one, rows are spilled instead."""

from __future__ import annotations

from enum import Enum

from tideline_capture.core.draft import Draft
from tideline_capture.core.events import Limits


class Roll(Enum):
    KEEP = "keep"
    SPILL = "spill"
    CLOSE = "close"


def roll(
    draft: Draft, limits: Limits, *, now: float, in_transaction: bool, moved_at: float | None
) -> Roll:
    """What to do with ``draft`` at ``now`` (monotonic seconds).

    ``moved_at``: since when the position has moved without a manifest that says so; an empty
    segment carries it on once per heartbeat.
    """
    if in_transaction:
        return Roll.SPILL if draft.row_bytes >= limits.segment_bytes_max else Roll.KEEP
    if draft.has_content():
        age = 0.0 if draft.opened_at is None else now - draft.opened_at
        full = draft.bytes >= limits.segment_bytes_max
        if full or draft.urgent or age >= limits.flush_interval_s:
            return Roll.CLOSE
        return Roll.KEEP
    if moved_at is not None and now - moved_at >= limits.heartbeat_s:
        return Roll.CLOSE
    return Roll.KEEP


def flush_due(draft: Draft, limits: Limits, *, now: float, buffered_since: float | None) -> bool:
    """Whether what is buffered should be decoded now, because the segment is about to close."""
    begun = [moment for moment in (draft.opened_at, buffered_since) if moment is not None]
    return bool(begun) and (draft.urgent or now - min(begun) >= limits.flush_interval_s)
