"""What an Iceberg table's metadata says of its versions, its commits and what it has applied."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tideline.contract.errors import CorruptData
from tideline.contract.plan import CommitMetadata
from tideline.warehouse.iceberg.metadata import (
    APPLIED_KEY,
    COMMIT_KEY,
    NUMBERS_KEY,
    IcebergMetadata,
)

APP = "shop/one/public.t/0"
OURS = CommitMetadata(APP, "shop", "one", "p", 0, 1, 10)


def snapshot(seq: int, parent: int | None, operation: str = "append", **summary: str) -> Any:
    found = {
        "snapshot-id": 100 + seq,
        "sequence-number": seq,
        "timestamp-ms": seq,
        "summary": {"operation": operation, "added-records": "3", **summary},
    }
    return found if parent is None else {**found, "parent-snapshot-id": 100 + parent}


def ours(number: int, **applied: int) -> dict[str, str]:
    return {
        COMMIT_KEY: OURS.text(),
        NUMBERS_KEY: json.dumps({APP: number}),
        APPLIED_KEY: json.dumps({**applied, APP: number}),
    }


def metadata(*snapshots: Any, current: int, **more: Any) -> IcebergMetadata:
    return IcebergMetadata(
        json.dumps(
            {
                "format-version": 3,
                "current-snapshot-id": 100 + current,
                "snapshots": snapshots,
                "snapshot-log": [{"snapshot-id": one["snapshot-id"]} for one in snapshots],
                **more,
            }
        )
    )


def test_versions_are_sequence_numbers_from_zero() -> None:
    found = metadata(
        snapshot(1, None, **ours(4)), snapshot(2, 1), snapshot(3, 2, "replace"), current=3
    )
    assert (found.version, [one.version for one in found.commits()]) == (2, [2, 1, 0])
    theirs, rewrite = list(found.commits(1, 1)), next(found.commits())
    assert [one.version for one in theirs] == [1] and theirs[0].changes_data
    assert not rewrite.changes_data, "it moves rows between files"
    assert found.applied() == {APP: 4}
    assert IcebergMetadata('{"format-version": 3}').version == 0


def test_a_rollback_goes_back_with_all_that_it_has_applied() -> None:
    kept = (snapshot(1, None, **ours(4)), snapshot(2, 1, **ours(9)))
    assert metadata(*kept, current=2).applied() == {APP: 9}
    back = metadata(*kept, current=1)
    assert (back.applied(), back.version) == ({APP: 4}, 0)
    later = metadata(*kept, snapshot(3, 1, **ours(5)), current=3)
    assert (later.applied(), [one.version for one in later.commits()]) == ({APP: 5}, [2, 0])


def test_a_replaced_table_goes_on_from_what_it_was() -> None:
    """Its snapshot has no parent; what was applied before is in its summary."""
    found = metadata(
        snapshot(1, None, **ours(4)),
        snapshot(2, None, "overwrite", **ours(7, **{"shop/one/public.t/0.1": 3})),
        current=2,
    )
    assert [one.version for one in found.commits()] == [1, 0]
    assert found.applied() == {APP: 7, "shop/one/public.t/0.1": 3}


def test_expired_snapshots_leave_what_they_said_in_a_property() -> None:
    properties = {APPLIED_KEY: json.dumps({APP: 4})}
    assert metadata(snapshot(9, 8), current=9, properties=properties).applied() == {APP: 4}


def test_a_property_that_is_empty_is_absent() -> None:
    found = metadata(snapshot(1, None), current=1, properties={"a": "", "b": "c"})
    assert found.properties == {"b": "c"}


@pytest.mark.parametrize(
    ("summary", "changes"),
    [
        ({}, True),
        ({"changed-partition-count": "0", "added-records": "0"}, False),
        ({"changed-partition-count": "0", "added-delete-files": "1"}, True),
        ({"changed-partition-count": "1", "added-records": "0"}, True),
    ],
)
def test_a_commit_without_files_changes_nothing(summary: dict[str, str], changes: bool) -> None:
    """A writer that does not count them is not believed to."""
    (commit,) = metadata(snapshot(1, None, **summary), current=1).commits()
    assert commit.changes_data is changes


@pytest.mark.parametrize("text", ["{", "[]", '{"a": "x"}', "7"])
def test_damaged_numbers_are_an_error(text: str) -> None:
    found = metadata(snapshot(1, None, **{NUMBERS_KEY: text}), current=1)
    with pytest.raises(CorruptData, match="has applied is damaged"):
        found.applied()


def test_each_version_has_a_digest_of_its_own() -> None:
    found = metadata(snapshot(1, None), snapshot(2, 1), current=2)
    digests = [found.digest(version) for version in range(3)]
    assert digests[2] == "" and len({*digests}) == 3
