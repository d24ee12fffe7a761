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
    SCHEMA_KEY,
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


def schema(schema_id: int, **columns: str) -> Any:
    """Columns with their types; a column's id is its place, which stays empty without a type."""
    fields = [
        {"id": at, "name": name, "type": kind, "required": False}
        for at, (name, kind) in enumerate(columns.items())
        if kind
    ]
    return {"schema-id": schema_id, "fields": fields}


def with_schema(made: Any, schema_id: int) -> Any:
    return {**made, "schema-id": schema_id}


FIRST = schema(0, id="int", a="int", b="string")
SWAPPED = schema(1, id="int", b="int", a="string")
MORE = schema(2, id="int", b="int", a="string", c="int")
LESS = schema(3, id="int", b="int", a="", c="int")
WIDE = schema(4, id="int", a="long", b="string")


def named(*snapshots: Any, current: int, now: int, **more: Any) -> list[str]:
    schemas = [FIRST, SWAPPED, MORE, LESS, WIDE]
    found = metadata(
        *snapshots, current=current, schemas=schemas, **{"current-schema-id": now}, **more
    )
    return [f"{one}{' judged' * one.judged}" for one in found.commits()]


@pytest.mark.parametrize(
    ("now", "kinds"),
    [
        (0, None),
        (1, "RENAME COLUMN"),
        (2, "RENAME COLUMN"),
        (3, "RENAME COLUMN, DROP COLUMN"),
        (4, "CHANGE COLUMN TYPE"),
        (9, None),
    ],
)
def test_a_change_of_columns_since_the_newest_snapshot(now: int, kinds: str | None) -> None:
    """It is a commit of the next version. A schema that is not kept says nothing."""
    found = named(with_schema(snapshot(1, None, **ours(1)), 0), current=1, now=now)
    assert found == [*([f"version 1: {kinds}"] if kinds else []), "version 0: append"]


def test_a_snapshot_of_ours_says_which_columns_its_run_knew() -> None:
    first = with_schema(snapshot(1, None, **ours(1)), 0)
    for known, suffix in ((0, ""), (1, " judged"), (2, ""), (9, "")):
        second = with_schema(snapshot(2, 1, **ours(2), **{SCHEMA_KEY: str(known)}), 1)
        assert named(first, second, current=2, now=1) == [
            "version 1: append",
            f"version 1: RENAME COLUMN{suffix}",
            "version 0: append",
        ]
    own = with_schema(snapshot(2, 1, **ours(2)), 1)
    assert named(first, own, current=2, now=2) == ["version 1: append", "version 0: append"]


def test_a_snapshot_of_others_hides_no_change_of_columns() -> None:
    """One with rows is itself external; one that moves rows between files is not."""
    first = with_schema(snapshot(1, None, **ours(1)), 0)
    rows, moved = (with_schema(snapshot(2, 1, kind), 1) for kind in ("append", "replace"))
    assert named(first, rows, current=2, now=1) == ["version 1: append", "version 0: append"]
    assert named(first, moved, current=2, now=1) == [
        "version 1: replace",
        "version 1: RENAME COLUMN",
        "version 0: append",
    ]


def test_a_rollback_takes_no_columns_back() -> None:
    """Ours are ours afterwards, and others' are others', also those that a run had judged."""
    first = with_schema(snapshot(1, None, **ours(1)), 0)
    own = with_schema(snapshot(2, 1, **ours(2)), 1)
    assert named(first, own, current=1, now=1) == ["version 0: append"]
    judged = with_schema(snapshot(2, 1, **ours(2), **{SCHEMA_KEY: "1"}), 1)
    back = ["version 1: RENAME COLUMN", "version 0: append"]
    assert named(first, judged, current=1, now=1) == back
    later = with_schema(snapshot(3, 1, **ours(3), **{SCHEMA_KEY: "1"}), 1)
    assert named(first, judged, later, current=3, now=1) == [
        "version 2: append",
        "version 1: RENAME COLUMN judged",
        "version 0: append",
    ]


def test_changes_of_columns_are_read_with_the_versions_that_they_lie_between() -> None:
    made = (with_schema(snapshot(n, n - 1 or None, **ours(n)), 0) for n in (1, 2))
    third = with_schema(snapshot(3, 2, "replace"), 1)
    found = metadata(
        *made, third, current=3, schemas=[FIRST, SWAPPED, LESS], **{"current-schema-id": 3}
    )

    def read(version: int | None, most: int = 9) -> list[str]:
        return [str(one) for one in found.commits(version, most)]

    newest = ["version 3: DROP COLUMN", "version 2: replace", "version 2: RENAME COLUMN"]
    assert read(None) == read(2) == [*newest, "version 1: append", "version 0: append"]
    assert read(1) == ["version 1: append", "version 0: append"]
    assert (read(2, 1), read(2, 0)) == (newest, newest[:1])


def test_each_version_has_a_digest_of_its_own() -> None:
    found = metadata(snapshot(1, None), snapshot(2, 1), current=2)
    digests = [found.digest(version) for version in range(3)]
    assert digests[2] == "" and len({*digests}) == 3
