"""Preflight's checks of the tables: those that can be captured, and those left out and why.

A table that cannot be captured is *quarantined*: named, left out of the publication, and the others
run. So that is a warning; an error is anything that would make capture wrong or stop it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tideline.contract.patterns import matches
from tideline.contract.schema import RESERVED_PREFIX, SPARKS_OWN, is_reserved
from tideline_capture.sources.finding import Finding, error, how_many, nothing_chosen, ok, warning
from tideline_capture.sources.key_configuration import KeyConfigurations, key_alternatives
from tideline_capture.sources.postgres.checks.facts import RelationFacts
from tideline_capture.sources.postgres.names import quoted

_LISTED_MAX = 20


def check_tables(
    chosen: Sequence[RelationFacts], every: Sequence[RelationFacts], *, role: str
) -> Iterator[Finding]:
    """Yield findings about the ``chosen`` tables; ``every`` relation is for the hint when there are
    none.

    ``role`` is the capture role as an SQL identifier.
    """
    if not chosen:
        yield _nothing_matches(every)
        return
    captured = [one for one in chosen if quarantined_reason(one) is None]
    yield how_many(len(captured), len(chosen))
    for one in chosen:
        reason = quarantined_reason(one)
        if reason is not None:
            yield warning("quarantined", f"{one.sql} is left out: {reason[0]}", reason[1])
    for one in captured:
        yield from _check_grants(one, role)
        yield from _check_columns(one)
    yield from _check_names(captured)


def quarantined_reason(one: RelationFacts) -> tuple[str, str | None] | None:
    """Return why a table cannot be captured, and the statement that changes it; None when it
    can."""
    alter = f"ALTER TABLE {one.sql}"
    if one.kind == "f":
        return "it is a foreign table, which the server's log does not hold", None
    if one.persistence == "u":
        return "it is unlogged", f"{alter} SET LOGGED;"
    if one.persistence == "t":
        return "it is temporary", None
    if one.identity == "n" or "n" in one.leaf_identities:
        return "its replica identity is NOTHING", f"{alter} REPLICA IDENTITY DEFAULT;"
    return _key_reason(one, alter) if one.judged is None else one.judged.reason


def check_images(
    chosen: Sequence[RelationFacts], key_configurations: KeyConfigurations
) -> Iterator[Finding]:
    """Check tables of which the settings want the whole row before a change, and the log lacks
    it."""
    for one in chosen:
        logged = one.identity == "f" and set(one.leaf_identities) <= {"f"}
        if key_configurations(one.table).image and not logged and quarantined_reason(one) is None:
            yield warning(
                "before_image",
                f"the log holds of a row of {one.sql} before a change its key alone, so segments"
                " have no more of it",
                f"ALTER TABLE {one.sql} REPLICA IDENTITY FULL; -- for each partition too",
            )


def _key_reason(one: RelationFacts, alter: str) -> tuple[str, str | None] | None:
    if not one.key and one.identity == "i":
        return "the index of its replica identity is gone", f"{alter} REPLICA IDENTITY DEFAULT;"
    if not one.key and one.unique_index is not None:
        fix = f"{alter} REPLICA IDENTITY USING INDEX {quoted(one.unique_index)};"
        return "it has no primary key", f"{fix} -- {key_alternatives(one.table)}"
    if not one.key:
        return (
            "it has no primary key",
            f"{alter} ADD PRIMARY KEY (…); -- {key_alternatives(one.table)}",
        )
    if not set(one.key).isdisjoint(one.generated):
        return "a column of its key is generated, and such columns are not in the log", None
    if "other" in one.leaf_identities:
        fix = "ALTER TABLE … REPLICA IDENTITY DEFAULT; -- or USING INDEX …, for each partition"
        return "a partition's replica identity is another than the key of the whole table", fix
    return None


def _nothing_matches(every: Sequence[RelationFacts]) -> Finding:
    exist = [one.table for one in every if not one.partition and matches(one.table, ["*.*"])]
    listed = ", ".join(str(table) for table in exist[:_LISTED_MAX]) or "none"
    more = f" and {len(exist) - _LISTED_MAX} more" if len(exist) > _LISTED_MAX else ""
    fix = (
        'set source.tables, for example ["public.*"]'
        if exist
        else "create tables whenever you like"
    )
    return nothing_chosen(f"the database has {listed}{more}", fix)


def _check_grants(one: RelationFacts, role: str) -> Iterator[Finding]:
    if not one.schema_usable:
        text = f"the role {role} may not use the schema of {one.sql}"
        yield error("usage", text, f"GRANT USAGE ON SCHEMA {quoted(one.table.schema)} TO {role};")
    if not one.readable:
        text = f"the role {role} may not read {one.sql}"
        yield error("select", text, f"GRANT SELECT ON TABLE {one.sql} TO {role};")
    if one.rows_hidden:
        text = (
            f"row-level security hides rows of {one.sql} from the role {role}: the log has"
            " them all, a dump would not, and ends in an error"
        )
        yield error("row_security", text, f"ALTER ROLE {role} BYPASSRLS;")


def _check_columns(one: RelationFacts) -> Iterator[Finding]:
    for column in one.columns:
        if is_reserved(column):
            yield error(
                "reserved",
                f"a column of {one.sql} has a name that Tideline ({RESERVED_PREFIX}…) or Spark"
                f" ({SPARKS_OWN}) keeps for itself: {quoted(column)}",
                f"ALTER TABLE {one.sql} RENAME COLUMN {quoted(column)} TO …;"
                f" -- or add the table to source.exclude",
            )
    for names in _collisions(list(one.columns)):
        text = f"columns of {one.sql} differ by case only: {', '.join(names)}"
        fix = f"ALTER TABLE {one.sql} RENAME COLUMN {quoted(names[-1])} TO …;"
        yield error("column_case", text, f"{fix} -- or add the table to source.exclude")
    if one.generated:
        columns = ", ".join(one.generated)
        text = f"generated columns are not in the server's log and left out: {one.sql} {columns}"
        yield ok("generated", text)


def _check_names(captured: Sequence[RelationFacts]) -> Iterator[Finding]:
    """Check tables whose warehouse addresses are the same on a store that ignores case."""
    for names in _collisions([str(one.table) for one in captured]):
        text = f"tables differ by case only, and may be one in the warehouse: {', '.join(names)}"
        yield warning("table_case", text, "rename one, or add it to source.exclude")


def _collisions(names: Sequence[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[name.lower()].append(name)
    return [group for group in groups.values() if len(group) > 1]
