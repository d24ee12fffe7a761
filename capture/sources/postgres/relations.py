"""Relations of the stream: from the oid in a row message to the table's schema.

The stream announces a relation's columns before its first row and after each change. Types that
are not built in, and the key of a table whose replica identity is the whole row, come from the
catalog.
"""

from __future__ import annotations

from typing import Any

from capture.sources.postgres.catalog import make_schema, read_tables
from capture.sources.postgres.pgoutput import Relation
from capture.sources.postgres.type_names import TypeNames
from tideline.contract.errors import CorruptData
from tideline.contract.schema import TableId, TableSchema

_FULL = "f"
_NAMES = """
SELECT pg_catalog.format_type(t.oid, t.typmod)
FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY AS t(oid, typmod, place) ORDER BY t.place
"""


class Relations:
    """The relations announced so far. ``cursor`` is of an SQL connection with pinned settings."""

    def __init__(self, cursor: Any, publication: str) -> None:
        self._cursor = cursor
        self._publication = publication
        self._types = TypeNames()
        self._schemas: dict[int, TableSchema] = {}

    def schema(self, oid: int) -> TableSchema:
        """The schema that rows of relation ``oid`` have now."""
        try:
            return self._schemas[oid]
        except KeyError:
            raise CorruptData(f"rows of relation {oid} came before its description") from None

    def announce(self, relation: Relation) -> TableSchema:
        """Take in a Relation message."""
        table = TableId(relation.schema, relation.name)
        oids = [column.type_oid for column in relation.columns]
        typmods = [column.typmod for column in relation.columns]
        self._types.load(self._cursor, oids)
        self._cursor.execute(_NAMES, (oids, typmods))
        texts = [row[0] for row in self._cursor.fetchall()]
        types = [self._types.resolve(*given) for given in zip(oids, typmods, texts, strict=True)]
        names = [column.name for column in relation.columns]
        schema = make_schema(table, names, types, self._key(relation))
        self._schemas[relation.oid] = schema
        return schema

    def close(self) -> None:
        self._cursor.connection.close()

    def _key(self, relation: Relation) -> tuple[str, ...]:
        """The key in the catalog's order, as long as the catalog still means these columns."""
        flagged = tuple(column.name for column in relation.columns if column.key)
        found = read_tables(
            self._cursor, [relation.oid], publication=self._publication, types=self._types
        )
        schema = found[0].facts.schema if found else None
        known = schema.key if schema is not None else ()
        if relation.identity == _FULL:
            names = {column.name for column in relation.columns}
            return known if set(known) <= names else ()
        return known if set(known) == set(flagged) else flagged
