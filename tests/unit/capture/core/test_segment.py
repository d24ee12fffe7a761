"""When a segment closes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.fixtures.core import LIMITS, SCHEMA, TABLE, make_rows
from tideline.contract.manifest import VerificationChunk
from tideline_capture.core.segment import OpenSegment, Roll, VerificationRows, flush_due, roll

NOW = 100.0


def filled(
    *, opened_at: float | None = NOW, size: int | None = None, urgent: bool = False
) -> OpenSegment:
    draft = OpenSegment(1, opened_at=opened_at, urgent=urgent)
    draft.add(make_rows([("c", 1, "a")], 1))
    draft.row_bytes = draft.row_bytes if size is None else size
    return draft


def verified() -> VerificationRows:
    """A chunk that was read to verify, of more bytes than a segment is to hold."""
    rows = pa.RecordBatch.from_arrays([pa.array(range(1 << 18), pa.int64())], names=["id"])
    return VerificationRows(
        VerificationChunk("v", TABLE, "f", 0, 1, 1, rows=rows.num_rows), SCHEMA, rows
    )


def rolled(draft: OpenSegment, *, now: float = NOW, inside: bool = False) -> Roll:
    return roll(
        draft,
        LIMITS,
        now=now,
        has_content=draft.has_content(),
        in_transaction=inside,
        moved_at=None,
    )


@pytest.mark.parametrize(
    ("draft", "now", "expected"),
    [
        (filled(), NOW + 0.9, Roll.KEEP),
        (filled(), NOW + 1.0, Roll.CLOSE),
        (filled(opened_at=None), NOW + 50, Roll.KEEP),
        (filled(size=(1 << 20) - 1), NOW, Roll.KEEP),
        (filled(size=1 << 20), NOW, Roll.CLOSE),
        (filled(urgent=True), NOW, Roll.CLOSE),
        (OpenSegment(1), NOW + 50, Roll.KEEP),
    ],
    ids=["young", "old", "just begun", "small", "full", "urgent", "empty"],
)
def test_between_transactions(draft: OpenSegment, now: float, expected: Roll) -> None:
    assert rolled(draft, now=now) is expected


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        (filled(urgent=True), Roll.KEEP),
        (filled(size=(1 << 20) - 1), Roll.KEEP),
        (filled(size=1 << 20), Roll.FLUSH),
    ],
)
def test_inside_a_transaction_nothing_closes(draft: OpenSegment, expected: Roll) -> None:
    assert rolled(draft, now=NOW + 1000, inside=True) is expected


def test_what_was_read_to_verify_counts_until_a_manifest_names_it() -> None:
    """It is not spilled: then it would spill whatever comes, row by row."""
    draft = filled()
    draft.add_verification(verified())
    assert rolled(draft, inside=True) is Roll.KEEP
    assert rolled(draft) is Roll.CLOSE
    draft.flush_partial()
    assert draft.bytes == draft.verification_rows[0].bytes >= 1 << 20
    assert rolled(draft) is Roll.CLOSE


def test_a_position_that_moved_is_carried_on_once_per_heartbeat() -> None:
    for later, expected in ((4.9, Roll.KEEP), (5.0, Roll.CLOSE)):
        found = roll(
            OpenSegment(1),
            LIMITS,
            now=NOW + later,
            has_content=False,
            in_transaction=False,
            moved_at=NOW,
        )
        assert found is expected


def test_spilled_rows_are_content_when_nothing_else_is() -> None:
    draft = OpenSegment(1, opened_at=NOW, partly_flushed=True)
    assert rolled(draft, now=NOW + 1) is Roll.CLOSE


class TestFlush:
    def test_it_is_due_when_the_oldest_row_is_old_enough(self) -> None:
        assert not flush_due(OpenSegment(1), LIMITS, now=NOW, buffered_since=NOW - 0.9)
        assert flush_due(OpenSegment(1), LIMITS, now=NOW, buffered_since=NOW - 1)
        assert flush_due(filled(opened_at=NOW - 1), LIMITS, now=NOW, buffered_since=NOW)

    def test_it_is_due_at_once_for_what_is_urgent(self) -> None:
        assert flush_due(filled(urgent=True), LIMITS, now=NOW, buffered_since=NOW)

    def test_nothing_buffered_is_never_due(self) -> None:
        assert not flush_due(OpenSegment(1, urgent=True), LIMITS, now=NOW, buffered_since=None)
