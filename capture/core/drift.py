"""What changed in a table between two looks at the source's catalog.

PostgreSQL's log has no DDL. Changes of data that no row event reports (rewrites, attached
partitions, filled-in defaults) leave traces in the catalog only, and are found by comparing it.
The comparison is conservative: what cannot be told from a harmless change counts as a change.
"""

from __future__ import annotations

from collections.abc import Mapping

from capture.core.events import TableFacts, columns_text
from tideline.contract.schema import ChangeKind, TableSchema, Verdict, difference, verdict


def drift(
    before: str, facts: TableFacts, schemas: Mapping[str, TableSchema], *, truncated: bool
) -> str | None:
    """Why rows may differ since ``before`` (a `TableFacts.catalog`), or None.

    ``truncated``: the log reported a truncate in between, which explains new storage of an ordinary
    table; a partition can have been truncated by itself, which the log does not tell. Changes that
    a schema event stands for (dropped, widened columns) are not repeated here.
    """
    oid, storage, columns, members, _, fingerprint = before.split("/")
    if oid != str(facts.oid):
        return "the table was re-created"
    if republished(before, facts):
        return "it was not published for a while"
    if not truncated and storage != facts.storage:
        return "the table was rewritten"
    if _members_changed(members, facts.members):
        return "partitions, labels or row types changed"
    if columns != columns_text(facts.columns):
        return _column_drift(columns, schemas.get(fingerprint), facts)
    return None


def republished(before: str, facts: TableFacts) -> bool:
    """Whether the table left the publication since ``before``, though it is in it now."""
    return before.split("/")[4] != facts.membership


def _members_changed(before: str, now: str) -> bool:
    """Whether partitions or enum labels differ; labels that were only added change no row."""
    old_parts, _, old_labels = before.partition("+")
    new_parts, _, new_labels = now.partition("+")
    if old_parts != new_parts:
        return True
    return not set(filter(None, old_labels.split(","))) <= set(new_labels.split(","))


def _column_drift(before: str, old: TableSchema | None, facts: TableFacts) -> str | None:
    if old is None or facts.schema is None:
        return "columns changed"
    changes = difference(old, facts.schema)
    added = {change.column for change in changes if change.kind is ChangeKind.ADD}
    filled = sorted(added & set(facts.backfilled))
    if filled:
        return f"added with a default: {', '.join(filled)}"
    if not changes:
        return "a column was replaced by one of the same name and type"
    if verdict(changes, facts.schema) is not Verdict.NEUTRAL:
        return "columns changed: " + ", ".join(str(change) for change in changes)
    count = before.partition(".")[0]
    if not count.isdecimal() or columns_text(facts.columns[: int(count)]) != before:
        return "columns were replaced, or changed their names among each other"
    return None
