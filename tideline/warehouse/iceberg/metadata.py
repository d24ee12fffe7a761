"""Parses the metadata of an Iceberg table, JSON by Iceberg's specification, for jobs and planner.

A version is a snapshot, numbered by its sequence number less one. A commit of ours has in its
snapshot's summary what it sets: `CommitMetadata` and applied numbers. So rows and numbers move in
one commit, and go back together when the table is rolled back.

A change of columns makes no snapshot. Where the schema of a snapshot is not that of the one before
it, someone changed columns in between, and that is a commit of its own, with the version that the
later one has. Our own changes of columns are snapshots that say so.
https://iceberg.apache.org/spec/#table-metadata
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tideline.contract.errors import CorruptData
from tideline.contract.external_commits import COMMITS_MAX, TableCommit
from tideline.contract.manifest import digest
from tideline.contract.plan import CommitMetadata
from tideline.warehouse.iceberg.schema_changes import ColumnChange, Schemas

COMMIT_KEY = "tideline.commit"
"""The key in a snapshot's summary with the text of the `CommitMetadata`."""
NUMBERS_KEY = "tideline.numbers"
"""… with the applied numbers that this commit sets, by app id (JSON)."""
APPLIED_KEY = "tideline.applied"
"""… with all that the table had applied before, as far as its writer knew. As a property of the
table: what the snapshots that have been expired since said."""
SCHEMA_KEY = "tideline.schema"
"""… with the id of the schema that the run has judged, where the commit leaves columns as they are.
A commit of ours without it has made them what they are."""
_REPLACE = "replace"
"""The operation of snapshots that only move rows between files."""
_CHANGES = (
    "added-data-files",
    "deleted-data-files",
    "added-delete-files",
    "removed-delete-files",
    "added-records",
    "deleted-records",
)
"""Counts in a summary that are above zero where rows may have changed."""
_COUNTED = "changed-partition-count"


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One snapshot of the metadata: ``raw`` is its JSON."""

    raw: Mapping[str, Any]

    @property
    def id(self) -> int:
        return int(self.raw["snapshot-id"])

    @property
    def sequence(self) -> int:
        return int(self.raw.get("sequence-number", 0))

    @property
    def version(self) -> int:
        return max(0, self.sequence - 1)

    @property
    def at_us(self) -> int:
        """The time of the commit, µs since 1970 UTC."""
        return 1_000 * int(self.raw["timestamp-ms"])

    @property
    def at_ms(self) -> int:
        """The same in ms."""
        return self.at_us // 1_000

    @property
    def parent(self) -> int | None:
        found = self.raw.get("parent-snapshot-id")
        return None if found is None else int(found)

    @property
    def schema_id(self) -> int | None:
        return self.raw.get("schema-id")

    @property
    def summary(self) -> Mapping[str, str]:
        return self.raw.get("summary") or {}

    @property
    def is_ours(self) -> bool:
        """True for a commit of Tideline, for any pipeline."""
        return COMMIT_KEY in self.summary

    @property
    def judged_schema(self) -> int | None:
        """The id of the schema that the run of a commit of ours has judged; None: its own."""
        found = self.summary.get(SCHEMA_KEY)
        return None if found is None or not found.isdecimal() else int(found)

    def numbers(self, key: str = NUMBERS_KEY) -> dict[str, int]:
        """Return the numbers that the summary has under ``key``."""
        return parse_numbers(self.summary.get(key))

    def count(self, *names: str) -> int:
        """Return the sum of counts of the summary."""
        return sum(int(self.summary.get(name, 0)) for name in names)

    def commit(self) -> TableCommit:
        """Return the snapshot as a commit. Raises CorruptData where ours is damaged."""
        return TableCommit(
            version=self.version,
            operation=self.summary.get("operation", "unknown"),
            restored_to=None,
            changes_data=self.changes_data,
            numbers=self.numbers(),
            commit_metadata=CommitMetadata.parse(self.summary.get(COMMIT_KEY)),
            rows_written=self.count("added-records"),
            at_us=self.at_us,
        )

    @property
    def changes_data(self) -> bool:
        """True where it may change rows: not every writer counts them."""
        if self.summary.get("operation") == _REPLACE:
            return False
        return self.summary.get(_COUNTED) != "0" or self.count(*_CHANGES) > 0


class IcebergMetadata:
    """The metadata of one table as it was read."""

    def __init__(self, text: str | bytes) -> None:
        self._raw: dict[str, Any] = json.loads(text)

    @property
    def format_version(self) -> int:
        return int(self._raw["format-version"])

    @cached_property
    def properties(self) -> dict[str, str]:
        """The table's properties. One that a replaced table no longer has is empty (see
        `emptied`)."""
        found: dict[str, str] = self._raw.get("properties") or {}
        return {name: value for name, value in found.items() if value != ""}

    @property
    def schema(self) -> Mapping[str, Any]:
        """The present schema."""
        wanted = self.schema_id
        found: Mapping[str, Any] = next(
            one for one in self._raw["schemas"] if one["schema-id"] == wanted
        )
        return found

    @property
    def schema_id(self) -> int:
        """The id of the present schema."""
        return int(self._raw["current-schema-id"])

    def columns_changed(self, schema_id: int | None) -> bool:
        """Return whether columns were renamed, dropped or given another type since a schema; also
        where that schema is no longer kept."""
        return self._schemas.differ(schema_id, self.schema_id)

    def has_columns_of(self, schema_id: int | None) -> bool:
        """Return whether columns are those of a schema, with the same names and types."""
        return self._schemas.same(schema_id, self.schema_id)

    @property
    def row_names(self) -> dict[int, str]:
        """The names of columns, by id, when the present snapshot was made."""
        found = None if self.current is None else self.current.schema_id
        return self._schemas.names(found)

    @property
    def partition_sources(self) -> list[int]:
        """The ids of the columns that the table is partitioned by."""
        wanted = self._raw["default-spec-id"]
        specs = (one for one in self._raw["partition-specs"] if one["spec-id"] == wanted)
        return [int(one["source-id"]) for one in next(specs)["fields"]]

    @property
    def partition_names(self) -> dict[str, int | None]:
        """The names of the partition fields that the table has or had, each with the id of the one
        column that may have that name too; None where none may."""
        fields = [one for spec in self._raw["partition-specs"] for one in spec["fields"]]
        return {
            one["name"]: int(one["source-id"]) if one["transform"] == "identity" else None
            for one in fields
        }

    @property
    def was_partitioned_by_dropped(self) -> bool:
        """True if a layout that the table has or had names a column that it no longer has."""
        held = {int(one["id"]) for one in self.schema["fields"]}
        fields = (one for spec in self._raw["partition-specs"] for one in spec["fields"])
        return any(int(one["source-id"]) not in held for one in fields)

    @cached_property
    def snapshots(self) -> dict[int, TableSnapshot]:
        """The snapshots that are kept, by id."""
        found = (TableSnapshot(one) for one in self._raw.get("snapshots") or ())
        return {one.id: one for one in found}

    @property
    def current(self) -> TableSnapshot | None:
        """The snapshot whose rows the table has; None for a table without one."""
        return self.snapshots.get(self._raw.get("current-snapshot-id") or -1)

    @property
    def version(self) -> int:
        """The number of the present version; 0 for a table to which nothing was committed."""
        return 0 if self.current is None else self.current.version

    def line(self) -> Iterator[TableSnapshot]:
        """Yield the present snapshot and those that it came from, newest first; a table that was
        replaced comes from the version that it replaced."""
        at, seen = self.current, set[int]()
        log = [int(one["snapshot-id"]) for one in self._raw.get("snapshot-log") or ()]
        while at is not None and at.id not in seen:
            yield at
            seen.add(at.id)
            before = at.parent
            if before is None and at.id in log:
                earlier = log[: log.index(at.id)]
                before = earlier[-1] if earlier else None
            at = None if before is None else self.snapshots.get(before)

    def only_others_since(self, snapshot_id: int | None) -> bool:
        """Return whether the table comes from a snapshot (None: from none) by commits that are not
        ours."""
        for one in self.line():
            if one.id == snapshot_id or one.is_ours:
                return one.id == snapshot_id
        return snapshot_id is None

    def ancestors(self) -> Iterator[TableSnapshot]:
        """Yield the present snapshot and those that it was made from, newest first, up to the first
        that is not kept."""
        at = self.current
        while at is not None:
            yield at
            at = None if at.parent is None else self.snapshots.get(at.parent)

    @property
    def referenced(self) -> frozenset[int]:
        """The ids of snapshots that branches and tags name."""
        refs = self._raw.get("refs") or {}
        return frozenset(int(one["snapshot-id"]) for one in refs.values())

    @property
    def present_ones(self) -> list[tuple[int, int]]:
        """The times (ms since 1970 UTC) from which snapshots were the present one, with their ids,
        oldest first, as far as that is kept."""
        log = self._raw.get("snapshot-log") or ()
        return [(int(one["timestamp-ms"]), int(one["snapshot-id"])) for one in log]

    def at(self, version: int) -> TableSnapshot | None:
        """Return the snapshot of a version."""
        found = (one for one in self.snapshots.values() if one.version == version)
        return next(found, None)

    def commits(self, version: int | None = None, most: int = COMMITS_MAX) -> Iterator[TableCommit]:
        """Yield the commits from ``version`` back, or from the newest one, ``most`` of them and the
        changes of columns before and after each.

        Raises CorruptData for a damaged one of ours.
        """
        line = {one.id for one in self.line()}
        newest = self.version if version is None else version
        left, ours = most, None
        for one, change in self._history():
            if one is not None and one.id in line and one.version <= newest:
                if not left:
                    return
                left -= 1
                ours = one if one.is_ours else ours
                yield one.commit()
            if change is not None and (newest >= self.version or change.version <= newest):
                # A commit of ours that made the columns has judged all that came before.
                known = None if ours is None else ours.judged_schema
                judged = ours is not None and (known is None or self._schemas.know(known, change))
                yield change.commit(judged=judged)

    def _history(self) -> Iterator[tuple[TableSnapshot | None, ColumnChange | None]]:
        """Yield every snapshot that is kept, newest first, with the change of columns before it,
        those of versions that were rolled back among them: columns are not. First comes a change
        since the newest one."""
        found: list[tuple[TableSnapshot | None, ColumnChange | None]] = []
        before: int | None = None
        for one in sorted(self.snapshots.values(), key=lambda one: one.sequence):
            # Another's rows are named as they are; our own columns are no change by others.
            whole = one.judged_schema is None if one.is_ours else one.changes_data
            since = None if whole else before
            found.append((one, self._schemas.change(since, one.schema_id, one.version, one.at_us)))
            before = before if one.schema_id is None else one.schema_id
        last = int(self._raw.get("last-sequence-number", self.version + 1))
        at_us = 1_000 * int(self._raw.get("last-updated-ms", 0))
        yield None, self._schemas.change(before, self._raw.get("current-schema-id"), last, at_us)
        yield from reversed(found)

    @cached_property
    def _schemas(self) -> Schemas:
        return Schemas(self._raw.get("schemas") or ())

    def applied(self) -> dict[str, int]:
        """Return what the table has applied, by app id."""
        found = parse_numbers(self.properties.get(APPLIED_KEY))
        for one in self.ancestors():
            for numbers in (one.numbers(), one.numbers(APPLIED_KEY)):
                for app, number in numbers.items():
                    found[app] = max(number, found.get(app, number))
        return found

    def digest(self, version: int) -> str:
        """Return the digest of a version's commit; "" without it."""
        found = self.at(version)
        if found is None:
            return ""
        return digest(json.dumps(found.raw, sort_keys=True).encode())


def parse_numbers(text: str | None) -> dict[str, int]:
    """Parse numbers by app id; CorruptData for a text that does not hold them."""
    try:
        found = {} if text is None else json.loads(text)
        return {str(app): int(number) for app, number in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise CorruptData(
            "what an Iceberg table says that it has applied is damaged",
            hint="another program changed it: remove the table from the catalog and merge again",
        ) from None


def format_numbers(numbers: Mapping[str, int]) -> str:
    """Return numbers by app id as a text."""
    return json.dumps(dict(sorted(numbers.items())), separators=(",", ":"))
