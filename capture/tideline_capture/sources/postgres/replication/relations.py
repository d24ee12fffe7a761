"""Relations of the stream: from the oid in a row message to the table's schema.

The stream announces a relation's columns before its first row and after each change. Types that
are not built in, and the key of a table whose replica identity is the whole row, come from the
catalog.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tideline.contract.errors import CorruptData
from tideline.contract.schema import TableId, TableSchema
from tideline_capture.core.events import SchemaSeen
from tideline_capture.core.facts import TableFacts
from tideline_capture.core.visibility import invisible
from tideline_capture.sources.key_configuration import KeyConfigurations, default_key
from tideline_capture.sources.postgres.catalog.tables import make_schema, read_tables
from tideline_capture.sources.postgres.catalog.type_names import TypeNames
from tideline_capture.sources.postgres.replication.pgoutput import Relation
from tideline_capture.sources.postgres.watermarks import take_snapshot

_FULL = "f"
_PATIENCE_S = 2.0
"""The wait until a snapshot shows a transaction that the log has: as long as a busy server takes
to end it. One that waits for a synchronous standby may take for ever: then the catalog is not
trusted."""
_PAUSE_S = 0.002
_NAMES = """
SELECT pg_catalog.format_type(t.oid, t.typmod)
FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY AS t(oid, typmod, place) ORDER BY t.place
"""


class Relations:
    """The relations announced so far. ``cursor`` is of an SQL connection with pinned settings;
    ``chosen``: whether the settings mean a table."""

    def __init__(
        self,
        cursor: Any,
        publication: str,
        key_configurations: KeyConfigurations = default_key,
        chosen: Callable[[TableId], bool] = lambda table: True,
    ) -> None:
        self._chosen = chosen
        self._cursor = cursor
        self._publication = publication
        self._key_configurations = key_configurations
        self._types = TypeNames()
        self._schemas: dict[int, TableSchema] = {}
        self._given_up: int | None = None

    def schema(self, oid: int) -> TableSchema:
        """Return the schema that rows of relation ``oid`` have now."""
        try:
            return self._schemas[oid]
        except KeyError:
            raise CorruptData(f"rows of relation {oid} came before its description") from None

    def observe(self, relation: Relation, xid: int) -> SchemaSeen:
        """Take in a Relation message of transaction ``xid``. If the columns are not those of the
        last one, return the catalog's description of the table with it."""
        seen = self._sees(xid)
        table = TableId(relation.schema, relation.name)
        oids = [column.type_oid for column in relation.columns]
        typmods = [column.typmod for column in relation.columns]
        self._types.load(self._cursor, oids)
        self._cursor.execute(_NAMES, (oids, typmods))
        texts = [row[0] for row in self._cursor.fetchall()]
        types = [self._types.resolve(*given) for given in zip(oids, typmods, texts, strict=True)]
        names = [column.name for column in relation.columns]
        facts = self._look(relation)
        schema = make_schema(table, names, types, self._key(relation, facts))
        news = self._schemas.get(relation.oid) != schema
        self._schemas[relation.oid] = schema
        is_new = news and seen and facts is not None and facts.schema == schema
        described = facts.description if seen and facts is not None else None
        starts_capture = is_new and self._chosen(table)
        new_facts = facts if is_new else None
        return SchemaSeen(
            schema, xid, relation.oid, new_facts, described, starts_capture=starts_capture
        )

    def close(self) -> None:
        self._cursor.connection.close()

    def _sees(self, xid: int) -> bool:
        """Return whether the catalog shows the same as transaction ``xid``, after one wait: that
        may have changed the table itself, and is in the log a moment before its changes are
        visible."""
        wanted = np.array([xid], np.int64)
        end = time.monotonic() + (0 if xid == self._given_up else _PATIENCE_S)
        while len(invisible(wanted, take_snapshot(self._cursor))):
            if time.monotonic() > end:
                self._given_up = xid
                return False
            time.sleep(_PAUSE_S)
        return True

    def _look(self, relation: Relation) -> TableFacts | None:
        found = read_tables(
            self._cursor,
            [relation.oid],
            publication=self._publication,
            types=self._types,
            key_configurations=self._key_configurations,
        )
        return found[0].facts if found else None

    def _key(self, relation: Relation, facts: TableFacts | None) -> tuple[str, ...]:
        """Return the key in the catalog's order, as long as the catalog still means these
        columns."""
        flagged = tuple(column.name for column in relation.columns if column.key)
        schema = facts.schema if facts is not None else None
        known = schema.key if schema is not None else ()
        if relation.identity == _FULL:
            names = {column.name for column in relation.columns}
            return known if set(known) <= names else ()
        if self._key_configurations(TableId(relation.schema, relation.name)).key:
            return known  # Not by other columns that identify the rows for the server.
        return known if set(known) == set(flagged) else flagged
