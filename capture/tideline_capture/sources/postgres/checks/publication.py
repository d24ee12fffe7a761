"""Checks of the publication: what it must publish, or how it is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tideline_capture.sources.finding import Finding, error, ok, warning
from tideline_capture.sources.postgres.checks.facts import (
    PostgresServerFacts,
    PublicationFacts,
    RelationFacts,
)
from tideline_capture.sources.postgres.checks.tables import quarantined_reason

OPERATIONS = ("insert", "update", "delete", "truncate")


def check_publication(
    publication: PublicationFacts | None,
    chosen: Sequence[RelationFacts],
    server: PostgresServerFacts,
    name: str,
) -> Iterator[Finding]:
    """Check that the publication ``name``, an SQL identifier, exists or can be made, and publishes
    all operations through the root, and all our tables."""
    captured = [one for one in chosen if quarantined_reason(one) is None]
    create = create_statement(name, captured)
    if publication is None:
        strangers = [one.sql for one in captured if not one.owned]
        if (server.may_create and not strangers) or server.superuser:
            yield ok("publication", f"Tideline will create the publication {name}")
        else:
            lacks = f"own {_few(strangers)}" if strangers else "have CREATE on the database"
            text = (
                f"there is no publication {name}, and the role cannot make it: it does not {lacks}"
            )
            yield error("publication", text, create)
        return
    if publication.all_tables:
        text = f"the publication {name} is FOR ALL TABLES: updates of a table without replica"
        fix = f"DROP PUBLICATION {name};"
        yield error("publication_all", f"{text} identity fail in the application", fix)
        return
    yield from _check_options(publication, name)
    yield from _check_members(publication, chosen, captured, server, name)


def _check_options(publication: PublicationFacts, name: str) -> Iterator[Finding]:
    missing = [word for word in OPERATIONS if word not in publication.operations]
    if missing:
        text = f"the publication {name} does not publish {', '.join(missing)}"
        fix = f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate');"
        yield error("publication_operations", text, fix)
    if not publication.via_root:
        text = f"the publication {name} publishes partitions under their own names"
        fix = f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true);"
        yield error("publication_root", text, fix)
    if not missing and publication.via_root:
        yield ok("publication", f"the publication {name} publishes all operations")


def _check_members(
    publication: PublicationFacts,
    chosen: Sequence[RelationFacts],
    captured: Sequence[RelationFacts],
    server: PostgresServerFacts,
    name: str,
) -> Iterator[Finding]:
    absent = [one for one in captured if one.table not in publication.published]
    narrowed = [one for one in captured if publication.published.get(one.table)]
    may_add = server.superuser or (publication.owned and all(one.owned for one in absent))
    if absent and may_add:
        text = f"Tideline will add to the publication {name}: {_few([a.sql for a in absent])}"
        yield ok("publication_tables", text)
    elif absent:
        listed = ", ".join(one.sql for one in absent)
        text = f"the publication {name} lacks {_few([one.sql for one in absent])}"
        fix = f"ALTER PUBLICATION {name} ADD TABLE {listed};"
        # The worker leaves such tables out, by name, and continues with the others.
        level = error if len(absent) == len(captured) else warning
        yield level("publication_tables", text, fix)
    for one in narrowed:
        yield error(
            "publication_filter",
            f"the publication {name} filters rows or columns of {one.sql}",
            f"ALTER PUBLICATION {name} DROP TABLE {one.sql};"
            f" ALTER PUBLICATION {name} ADD TABLE {one.sql};",
        )
    for one in chosen:
        reason = quarantined_reason(one)
        if one.table in publication.published and reason is not None and one.identity != "f":
            drop = f"ALTER PUBLICATION {name} DROP TABLE {one.sql};"
            yield error(
                "publication_identity",
                f"{one.sql} is published without a replica identity: the application's updates"
                " and deletes of it fail",
                drop,
            )


def create_statement(publication: str, tables: Sequence[RelationFacts]) -> str:
    """Return the statement that makes the publication, tables listed one by one; names are
    quoted."""
    listed = ", ".join(one.sql for one in tables)
    only = f" FOR TABLE {listed}" if listed else ""
    return (
        f"CREATE PUBLICATION {publication}{only} WITH"
        " (publish = 'insert, update, delete, truncate', publish_via_partition_root = true);"
    )


def _few(names: Sequence[str]) -> str:
    """Return the first names of a list that may be long."""
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
