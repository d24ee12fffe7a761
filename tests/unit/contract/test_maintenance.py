"""When rewriting a table's files pays."""

from __future__ import annotations

import msgspec
import pytest

from tideline.contract.errors import CorruptData
from tideline.contract.maintenance import Files, Thresholds, decide, decode_order

LIMITS = Thresholds(
    file_bytes=128,
    small_files_min=16,
    deleted_percent=10.0,
    bytes_max=1000,
    vacuum_hours=168.0,
    retries_max=8,
)


@pytest.mark.parametrize(
    ("files", "named", "rewrite"),
    [
        (Files(files=100, small=15), False, False),
        (Files(files=100, small=16), False, True),
        (Files(files=100, small=16, small_bytes=1001), False, False),
        (Files(files=100, small=16, small_bytes=1001), True, True),
        (Files(files=100, small=16, small_bytes=1000, vector_bytes=9000), False, True),
        (Files(files=9, fragmented=1, rows=10, deleted=9, vector_bytes=1001), False, False),
        (Files(files=100, fragmented=15, rows=1000, deleted=99), False, False),
        (Files(files=100, fragmented=1, rows=1000, deleted=100), False, True),
        (Files(files=100, fragmented=16, rows=1000, deleted=20), False, True),
        (Files(files=100, fragmented=0, rows=1000, deleted=100), False, False),
        (Files(), True, False),
    ],
)
def test_what_pays(files: Files, named: bool, rewrite: bool) -> None:
    decision = decide(files, LIMITS, named=named)
    assert decision.rewrite is rewrite
    if max(files.small_bytes, files.vector_bytes) > LIMITS.bytes_max and not rewrite:
        assert "maintain.bytes_max" in decision.reason


def test_an_order_of_another_version_is_refused() -> None:
    with pytest.raises(CorruptData, match="maintenance order"):
        decode_order(msgspec.json.encode({"version": 9}))
