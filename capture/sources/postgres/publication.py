"""The publication: an explicit list of tables, kept by us where the role may.

``FOR ALL TABLES`` is never used: it makes the application's own UPDATE and DELETE fail on every
table without a replica identity. A table is added only after its identity was found good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg2
import psycopg2.errors

from capture.core.events import TableFacts
from capture.sources.postgres.names import qualified, quoted
from tideline.contract.errors import Misconfigured
from tideline.contract.schema import parse_table

OPTIONS = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"

_READ = """
SELECT puballtables, pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot
FROM pg_catalog.pg_publication WHERE pubname = %s
"""


def ensure_publication(cursor: Any, name: str) -> None:
    """Create the publication, empty, unless it is there; Misconfigured when it is not as it must
    be, with the statement that makes it so."""
    cursor.execute(_READ, (name,))
    row = cursor.fetchone()
    if row is None:
        statement = f"CREATE PUBLICATION {quoted(name)} WITH ({OPTIONS})"
        try:
            cursor.execute(statement)
        except psycopg2.errors.InsufficientPrivilege:
            raise Misconfigured(
                f"publication {name!r} does not exist and the role may not create it",
                hint=f"let the owner of the tables run: CREATE PUBLICATION {quoted(name)}"
                f" FOR TABLE … WITH ({OPTIONS})",
            ) from None
        except psycopg2.errors.DuplicateObject:
            return
        return
    everything, operations, via_root = row
    if everything or not operations or not via_root:
        fix = f"ALTER PUBLICATION {quoted(name)} SET ({OPTIONS})"
        if everything:
            fix = f"DROP PUBLICATION {quoted(name)} and let Tideline create it with a table list"
        raise Misconfigured(f"publication {name!r} does not publish what capture needs", hint=fix)


def publish(cursor: Any, name: str, tables: Sequence[TableFacts]) -> list[TableFacts]:
    """Add the tables that can be captured and are not published; all facts, brought up to date.

    A table that the role may not add gets a problem with the statement as its hint.
    """
    return [
        facts if facts.published or facts.problem else _add(cursor, name, facts) for facts in tables
    ]


def _add(cursor: Any, name: str, facts: TableFacts) -> TableFacts:
    table = qualified(parse_table(facts.table))
    statement = f"ALTER PUBLICATION {quoted(name)} ADD TABLE {table}"
    try:
        cursor.execute(statement)
    except psycopg2.errors.DuplicateObject:
        return replace(facts, published=True)
    except psycopg2.errors.InsufficientPrivilege:
        return replace(
            facts,
            schema=None,
            problem="it is not in the publication, and the role may not add it",
            hint=f"let the table's owner run: {statement}",
        )
    except (psycopg2.errors.LockNotAvailable, psycopg2.errors.UndefinedTable):
        return replace(
            facts, schema=None, problem="it could not be added to the publication yet", hint=None
        )
    return replace(facts, published=True)
