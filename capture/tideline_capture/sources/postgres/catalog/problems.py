"""Reasons why a table, or the key that the settings name, cannot be captured, each with a
remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tideline.contract.schema import RESERVED_PREFIX, TableId, is_ours
from tideline_capture.sources.key_configuration import KeyConfiguration, key_alternatives
from tideline_capture.sources.postgres.names import qualified, quoted


@dataclass(frozen=True, slots=True)
class TableParts:
    """Raw rows of one table: pg_class, columns, key attribute numbers, partition leaves, and the
    columns that these have filled.

    ``refusal``: the reason why the key that the settings name is not one, with a remedy.
    """

    row: Sequence[Any]
    columns: Sequence[Sequence[Any]]
    key: Sequence[Sequence[Any]]
    leaves: Sequence[Sequence[Any]]
    refusal: tuple[str, str] | None = None
    filled: Sequence[Sequence[Any]] = ()


def with_named_key(
    parts: TableParts,
    key: Sequence[str],
    unique: Sequence[Sequence[Any]],
    firm: Sequence[Sequence[Any]],
) -> TableParts:
    """Return ``parts`` with the key that the settings name, or with the reason why it is not one:
    the server must enforce its uniqueness, and old rows must be logged by it."""
    table = TableId(parts.row[1], parts.row[2])
    alter = f"ALTER TABLE {qualified(table)}"
    numbers = {row[1]: row[0] for row in parts.columns}
    named_key = f"the key that the settings name ({', '.join(key)})"

    def refused(reason: str, hint: str) -> TableParts:
        return replace(parts, key=(), refusal=(f"{named_key} is none: {reason}", hint))

    absent = [name for name in key if name not in numbers]
    if absent:
        return refused(f"there is no column {', '.join(absent)}", "correct key in the settings")
    not_null = {number for (number,) in firm}
    loose = [name for name in key if numbers[name] not in not_null]
    if loose:
        fix = ", ".join(f"ALTER COLUMN {quoted(name)} SET NOT NULL" for name in loose)
        return refused(f"{', '.join(loose)} may be NULL", f"{alter} {fix}")
    wanted = {numbers[name] for name in key}
    indexes = {row[0]: row[1] for row in unique if set(row[2]) == wanted}
    columns = ", ".join(quoted(name) for name in key)
    if not indexes:
        return refused(
            "no unique index covers exactly these columns",
            f"CREATE UNIQUE INDEX CONCURRENTLY ON {qualified(table)} ({columns})",
        )
    logged = next((index for index, identity in indexes.items() if identity), None)
    primary = parts.row[7] if parts.row[5] in ("d", "f") else None
    if parts.row[5] == "d" and primary in indexes:
        logged = primary
    if parts.row[5] == "f":
        logged = min(indexes)
    if logged is None:
        return refused(
            "old rows are not logged by it",
            f"{alter} REPLICA IDENTITY USING INDEX … of these columns, or REPLICA IDENTITY FULL",
        )
    row = [*parts.row[:7], logged, *parts.row[8:]]
    return replace(parts, row=row, key=[(numbers[name],) for name in key])


def problem_of(
    table: TableId, key: tuple[str, ...], parts: TableParts, key_configuration: KeyConfiguration
) -> tuple[str | None, str | None]:
    """Return why the table cannot be captured, and what would change that."""
    name = qualified(table)
    persistence, identity, narrowed = parts.row[4], parts.row[5], parts.row[9]
    reserved = [row[1] for row in parts.columns if is_ours(row[1])]
    if persistence != "p":
        return "it is unlogged: its changes are not in the log", f"ALTER TABLE {name} SET LOGGED"
    if reserved:
        return f"columns begin with {RESERVED_PREFIX}: {', '.join(reserved)}", "rename them"
    if identity == "n" or any(leaf[2] == "n" for leaf in parts.leaves):
        return "its replica identity is NOTHING", f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT"
    if key and any(not _logged_by_key(parts, leaf) for leaf in parts.leaves):
        return "a partition's replica identity is another than the key of the whole table", (
            "give every partition the replica identity of the root:"
            " ALTER TABLE … REPLICA IDENTITY DEFAULT, or USING INDEX …"
        )
    if narrowed:
        return "the publication leaves out rows or columns of it", (
            f"ALTER PUBLICATION … DROP TABLE {name}; it is then added again, as a whole"
        )
    if parts.refusal is not None:
        return parts.refusal
    if key and len(key) == len(parts.key):
        return None, None
    return _keyless_problem(table, parts, key_configuration)


def _keyless_problem(
    table: TableId, parts: TableParts, key_configuration: KeyConfiguration
) -> tuple[str | None, str | None]:
    """Return the problem of a table without a key, or whose key has a column that the log lacks."""
    name = qualified(table)
    if not key_configuration.keyless or parts.key:
        return "it has no key: no primary key and no replica identity index", (
            f"ALTER TABLE {name} ADD PRIMARY KEY (…), or a unique index over NOT NULL columns"
            f" and ALTER TABLE {name} REPLICA IDENTITY USING INDEX …; {key_alternatives(table)}"
        )
    if parts.row[5] != "f" or any(leaf[2] != "f" for leaf in parts.leaves):
        return "it has no key, and the log does not hold the row before a change of it", (
            f"ALTER TABLE {name} REPLICA IDENTITY FULL"
            + (", and of each of its partitions" if parts.leaves else "")
        )
    return None, None


def _logged_by_key(parts: TableParts, leaf: Sequence[Any]) -> bool:
    """Return whether old rows of the partition are logged with the key of the whole table.
    Otherwise its deletes name no row, or the server refuses them because the root is published."""
    return leaf[2] == "f" or parts.row[7] in (leaf[4] or ())
