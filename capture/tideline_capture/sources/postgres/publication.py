"""The publication: an explicit list of tables, kept by us where the role may.

``FOR ALL TABLES`` is never used: it makes the application's own UPDATE and DELETE fail on every
table without a replica identity. A table is added only after its identity was found good, and by
itself: without ``ONLY``, the tables that inherit from it would be added too, good or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg2
import psycopg2.errors

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import parse_table
from tideline_capture.core.facts import TableFacts
from tideline_capture.sources.postgres.names import qualified, quoted

OPTIONS = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"

_NOT_A_MEMBER = "42704"
"""SQLSTATE of a table that is not in the publication by itself, but with its schema."""
_READ = """
SELECT puballtables, pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot
FROM pg_catalog.pg_publication WHERE pubname = %s
"""


def ensure_publication(cursor: Any, name: str) -> None:
    """Create the publication, empty, unless it is there; raises Misconfigured when the role may
    not, and like `has_publication`."""
    if has_publication(cursor, name):
        return
    try:
        cursor.execute(f"CREATE PUBLICATION {quoted(name)} WITH ({OPTIONS})")
    except psycopg2.errors.InsufficientPrivilege:
        raise Misconfigured(
            f"publication {name!r} does not exist and the role may not create it",
            hint=f"let the owner of the tables run: CREATE PUBLICATION {quoted(name)}"
            f" FOR TABLE … WITH ({OPTIONS})",
        ) from None
    except (psycopg2.errors.DuplicateObject, psycopg2.errors.UniqueViolation):
        return  # Another worker of this pipeline was first.


def has_publication(cursor: Any, name: str) -> bool:
    """Return whether the publication is there; Misconfigured when it is not as it must be, with the
    statement that makes it so."""
    cursor.execute(_READ, (name,))
    row = cursor.fetchone()
    if row is None:
        return False
    everything, operations, via_root = row
    if everything or not operations or not via_root:
        fix = f"ALTER PUBLICATION {quoted(name)} SET ({OPTIONS})"
        if everything:
            fix = f"DROP PUBLICATION {quoted(name)} and let Tideline create it with a table list"
        raise Misconfigured(f"publication {name!r} does not publish what capture needs", hint=fix)
    return True


def publish(cursor: Any, name: str, tables: Sequence[TableFacts]) -> dict[str, TableFacts]:
    """Add the tables that can be captured and are not published. Returns those that could not be
    added, with the problem and, where there is one, the statement that helps."""
    failed = {}
    for facts in tables:
        if not facts.membership and facts.problem is None:
            problem = _add(cursor, name, facts)
            if problem is not None:
                failed[facts.table] = problem
    return failed


def withdraw(cursor: Any, name: str, tables: Sequence[TableFacts]) -> dict[str, TableFacts]:
    """Take tables that cannot be captured out of the publication.

    With a table that has no identity in it, the server refuses the application's own updates.
    Returns those that the role may not take out, with the statement in the hint.
    """
    left = {}
    for facts in tables:
        if not facts.membership or facts.problem is None or facts.narrowed:
            continue
        table = qualified(parse_table(facts.table))
        statement = f"ALTER PUBLICATION {quoted(name)} DROP TABLE ONLY {table}"
        try:
            cursor.execute(statement)
        except psycopg2.Error as error:
            if cursor.connection.closed:
                raise
            if error.pgcode != _NOT_A_MEMBER:
                hint = f"{facts.hint}; or {statement}" if facts.hint else statement
                left[facts.table] = replace(facts, hint=hint)
    return left


def not_added(name: str, facts: TableFacts) -> TableFacts:
    """Return the facts of a table that is not published, and that the role may not publish."""
    problem = "it is not in the publication, and the role may not add it"
    hint = f"let the table's owner run: {_add_statement(name, facts)}"
    return replace(facts, schema=None, problem=problem, hint=hint)


def _add_statement(name: str, facts: TableFacts) -> str:
    return f"ALTER PUBLICATION {quoted(name)} ADD TABLE ONLY {qualified(parse_table(facts.table))}"


def _add(cursor: Any, name: str, facts: TableFacts) -> TableFacts | None:
    statement = _add_statement(name, facts)
    try:
        cursor.execute(statement)
    except (psycopg2.errors.DuplicateObject, psycopg2.errors.UniqueViolation):
        return None
    except psycopg2.errors.InsufficientPrivilege:
        return not_added(name, facts)
    except psycopg2.Error as error:
        if cursor.connection.closed:
            raise
        # A lock, a table that was dropped in the meantime, another session at the same row: the
        # next round tries again.
        problem = f"it could not be added to the publication (SQLSTATE {error.pgcode})"
        return replace(facts, schema=None, problem=problem, hint=statement)
    return None
