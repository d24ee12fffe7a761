"""The assessment of PostgreSQL's tables: those the catalog accepts, and those it does not list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2

from tideline.contract.patterns import matches
from tideline.contract.schema import TableId
from tideline.settings import Settings
from tideline_capture.core.facts import TableFacts
from tideline_capture.sources.administration import AssessedTable
from tideline_capture.sources.key_configuration import key_configurations_of
from tideline_capture.sources.postgres.catalog.tables import (
    PostgresCatalogTable,
    list_tables,
    read_tables,
)
from tideline_capture.sources.postgres.catalog.type_names import TypeNames
from tideline_capture.sources.postgres.checks.facts import (
    PostgresServerFacts,
    PublicationFacts,
    RelationFacts,
    read_publication,
    read_relations,
    read_server,
)
from tideline_capture.sources.postgres.checks.tables import quarantined_reason
from tideline_capture.sources.postgres.connect import connect, querying
from tideline_capture.sources.postgres.names import publication_name
from tideline_capture.sources.postgres.publication import not_added
from tideline_capture.sources.postgres.types import PINNED

_LOCK_WAIT = {"lock_timeout": "2000"}
_FOREIGN = "f"
_SIZES = """
SELECT o, (SELECT sum(CASE WHEN c.reltuples >= 0 THEN c.reltuples END)::bigint
           FROM pg_catalog.pg_partition_tree(o) t JOIN pg_catalog.pg_class c ON c.oid = t.relid
           WHERE t.isleaf),
       (SELECT sum(pg_catalog.pg_table_size(t.relid))::bigint
        FROM pg_catalog.pg_partition_tree(o) t WHERE t.isleaf)
FROM unnest(%s::oid[]) o
"""
"""Rows are unknown (NULL) for a table that was never analyzed."""
_PLAIN_SIZES = """
SELECT c.oid, CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END,
       pg_catalog.pg_table_size(c.oid)
FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s) AND c.relkind = 'r'
"""


def assess(settings: Settings) -> list[AssessedTable]:
    """See `Administration.assess`."""
    name = f"tideline assess {settings.pipeline}"
    pinned = {**PINNED, **_LOCK_WAIT}
    connection = connect(settings.source, application_name=name, settings=pinned)
    with closing(connection), querying():
        return sorted(_assess(connection, settings), key=lambda one: one.table)


def _assess(connection: Any, settings: Settings) -> Iterator[AssessedTable]:
    source, publication = settings.source, publication_name(settings)
    relations = {one.table: one for one in read_relations(connection)}
    access = _Access(read_server(connection), read_publication(connection, publication))
    with connection.cursor() as cursor:
        oids = list(list_tables(cursor, source.tables, source.exclude))
        found = read_tables(
            cursor,
            oids,
            publication=publication,
            types=TypeNames(),
            key_configurations=key_configurations_of(settings),
        )
        sizes = _sizes(cursor, oids)
    for one in found:
        relation = relations.get(one.table)
        facts = one.facts
        if facts.problem is None and relation is not None and not access.publishes(one, relation):
            facts = not_added(publication, facts)
        yield _assessed(one.table, facts, relation, sizes.get(facts.oid, (None, None)))
    for table, relation in relations.items():
        if relation.kind == _FOREIGN and matches(table, source.tables, source.exclude):
            problem, hint = quarantined_reason(relation) or ("it is a foreign table", None)
            yield AssessedTable(table, None, problem, hint)


def _assessed(
    table: TableId,
    facts: TableFacts,
    relation: RelationFacts | None,
    size: tuple[int | None, int | None],
) -> AssessedTable:
    rows, size_bytes = size
    return AssessedTable(
        table=table,
        schema=None if facts.problem else facts.schema,
        problem=facts.problem,
        hint=facts.hint,
        rows=rows,
        bytes=size_bytes,
        left_out=() if relation is None else relation.generated,
    )


class _Access:
    """The role's rights on the publication (None: it is still to be made)."""

    def __init__(self, server: PostgresServerFacts, publication: PublicationFacts | None) -> None:
        self._server = server
        self._publication = publication

    def publishes(self, table: PostgresCatalogTable, relation: RelationFacts) -> bool:
        """Return whether the table is published, or will be: by the worker, or by the administrator
        who makes the publication, without which capture does not begin (`setup_sql`)."""
        if table.facts.membership or self._server.superuser or self._publication is None:
            return True
        return self._publication.owned and relation.owned


def _sizes(cursor: Any, oids: list[int]) -> dict[int, tuple[int | None, int | None]]:
    """Return rows and bytes by oid. A table that is being rewritten has neither: the query does not
    wait for it."""
    sizes: dict[int, tuple[int | None, int | None]] = {}
    for query in (_SIZES, _PLAIN_SIZES):
        try:
            cursor.execute(query, (oids,))
        except (psycopg2.errors.LockNotAvailable, psycopg2.errors.UndefinedTable):
            continue
        sizes |= {oid: (rows, size) for oid, rows, size in cursor.fetchall() if size is not None}
    return sizes
