"""Finds what changed in a table between two looks at the source's catalog.

PostgreSQL's log has no DDL. Changes of data that no row event reports (rewrites, attached
partitions, filled-in defaults) leave traces in the catalog only, and are found by comparing it. The
comparison is conservative: what may be a change of data counts as one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tideline.contract.schema import ChangeKind, TableSchema, Verdict, difference, verdict
from tideline_capture.core.facts import CatalogIdentity, TableFacts, columns_text


def drift(
    before: str,
    facts: TableFacts,
    schemas: Mapping[str, TableSchema],
    *,
    truncated: bool,
    certain: bool = False,
) -> str | None:
    """Return why rows may differ since ``before`` (a `TableFacts.catalog`), or None.

    ``truncated``: the log reported a truncate in between, which explains new storage of an ordinary
    table; a partition can have been truncated by itself, without an entry in the log. ``certain``:
    the new place of each column is known, and a schema event judges it.
    """
    was = CatalogIdentity.parse(before)
    if was.oid != str(facts.oid):
        return "the table was re-created"
    if republished(before, facts):
        return "it was not published for a while"
    if not truncated and was.storage != facts.storage:
        return "the table was rewritten"
    if _members_changed(was.members, facts.members):
        return "partitions, labels or row types changed"
    known, last = _columns(was.columns)
    if certain or known == columns_text(facts.columns):
        return None
    alike = stored_alike(before, facts)
    return _column_drift(known, last, schemas.get(was.schema), facts, alike=alike)


def _columns(text: str) -> tuple[str, int | None]:
    """Parse a `TableFacts.columns_text`."""
    count, digest, *last = text.split(".")
    return f"{count}.{digest}", int(last[0]) if last else None


def stored_alike(before: str | None, facts: TableFacts) -> bool:
    """Return whether rows are stored where they were (`before`: None is not known)."""
    if before is None:
        return False
    was = CatalogIdentity.parse(before)
    partitions = (was.members.partition("+")[0], facts.members.partition("+")[0])
    return was.storage == facts.storage and partitions[0] == partitions[1]


def republished(before: str, facts: TableFacts) -> bool:
    """Return whether the table left the publication since ``before``, though it is in it now."""
    return CatalogIdentity.parse(before).membership != facts.membership


def _members_changed(before: str, now: str) -> bool:
    """Return whether partitions or enum labels differ; labels that were only added change no
    row."""
    old_parts, _, old_labels = before.partition("+")
    new_parts, _, new_labels = now.partition("+")
    if old_parts != new_parts:
        return True
    return not set(filter(None, old_labels.split(","))) <= set(new_labels.split(","))


def _column_drift(
    before: str, last: int | None, old: TableSchema | None, facts: TableFacts, *, alike: bool
) -> str | None:
    """Return what changed in columns.

    ``last``: the highest number of a column then; ``alike``: rows are stored where they were.
    """
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
    if last is not None and facts.numbers is not None and facts.numbers.last - last != len(added):
        # The log may have had rows with a column of the same name, which is another one.
        return "columns came and went"
    if added and not alike:
        return "columns were added, and rows rewritten"  # With values, perhaps.
    return None
