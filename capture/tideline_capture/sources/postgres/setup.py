"""The statements that an owner runs before a PostgreSQL database is captured.

They need no connection, so that they can be read, kept and handed on. Only the server knows the
tables: one block grants and publishes those that the patterns mean, by the names it has then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import unquote, urlsplit

from tideline.contract.errors import Misconfigured
from tideline.contract.patterns import PatternPart, split_pattern
from tideline.contract.printable import printable
from tideline.settings import Settings
from tideline_capture.sources.postgres.names import publication_name, quoted
from tideline_capture.sources.postgres.publication import OPTIONS
from tideline_capture.sources.setup import signs

_BLOCK = """\
DO $tideline$
DECLARE one record;
BEGIN
  FOR one IN
    SELECT n.nspname, c.relname, {fit} AS fit
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
      AND ({chosen})
  LOOP
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO {role}', one.nspname);
    EXECUTE format('GRANT SELECT ON TABLE %I.%I TO {role}', one.nspname, one.relname);
    IF one.fit THEN
      EXECUTE format('ALTER PUBLICATION {publication} ADD TABLE ONLY %I.%I',
                     one.nspname, one.relname);
    END IF;
  END LOOP;
END $tideline$;"""

_FIT = """(EXISTS (
        SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisvalid
          AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'n' THEN false
              ELSE i.indisprimary END
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid
                          AND a.attnum = ANY (i.indkey::int2[]) AND a.attgenerated <> ''))
      AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_partition_tree(c.oid) t
        JOIN pg_catalog.pg_class l ON l.oid = t.relid
        WHERE t.isleaf AND l.oid <> c.oid AND l.relreplident NOT IN ('d', 'f'))
      AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_publication_rel r
        JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
        WHERE r.prrelid = c.oid AND p.pubname = {name}))"""
"""A published table without an identity would make the application's own updates fail. `tideline
doctor` reports one with other partitions. One that is published already stays so: the statements
may be run again."""


def setup_sql(settings: Settings) -> str:
    """Return the statements, with comments; no password in them. Raises Misconfigured for a url
    without a user."""
    source = settings.source
    if not source.user:
        raise Misconfigured(
            "source.url names no user", hint="write postgresql://user@host:port/database"
        )
    role, publication = quoted(source.user), quoted(publication_name(settings))
    database = unquote(urlsplit(source.url.get_secret_value()).path.strip("/"))
    block = _BLOCK.format(
        fit=_FIT.format(name=_literal(publication_name(settings))),
        chosen=_chosen(source.tables, source.exclude),
        role=_in_format(role),
        publication=_in_format(publication),
    )
    # A comment ends with its line.
    named, place = printable(role), printable(database)
    lines = [
        f"-- For the pipeline {settings.pipeline}: in the database {place}, as a superuser.",
        "-- The server needs wal_level = logical; `tideline doctor` names whatever else it lacks.",
        f"CREATE ROLE {role} LOGIN REPLICATION;",
        f"-- On RDS instead: CREATE ROLE {named} LOGIN; GRANT rds_replication TO {named};",
        "-- Where the role is there already, for another pipeline, the first line is left out.",
        "-- Until it has a password the role cannot log in. The one that tideline is given:",
        f"-- ALTER ROLE {named} PASSWORD '…';",
        "-- Only where tables have row-level security, which would hide rows from it:",
        f"-- ALTER ROLE {named} BYPASSRLS;",
        f"CREATE PUBLICATION {publication} WITH ({OPTIONS});",
        *_of_schemas(source.tables, role),
        "-- Tables that are there: the role may read them, those with a key are published.",
        block,
    ]
    return "\n".join(lines) + "\n"


def _of_schemas(patterns: Sequence[str], role: str) -> Iterator[str]:
    """Yield the grants for schemas that are named word for word, which later tables need, too."""
    for schema in dict.fromkeys(
        schema.text for schema, _ in map(split_pattern, patterns) if schema.plain
    ):
        yield f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {role};"
        if any(not name.plain for of, name in map(split_pattern, patterns) if of.text == schema):
            yield (
                f"ALTER DEFAULT PRIVILEGES IN SCHEMA {quoted(schema)}"
                f" GRANT SELECT ON TABLES TO {role};  -- as whoever makes tables there"
            )


def _chosen(include: Sequence[str], exclude: Sequence[str]) -> str:
    chosen = " OR ".join(map(_condition, include)) or "false"
    if not exclude:
        return chosen
    return f"({chosen}) AND NOT ({' OR '.join(map(_condition, exclude))})"


def _condition(pattern: str) -> str:
    schema, name = split_pattern(pattern)
    if schema == PatternPart("*", plain=False):
        of_schema = r"n.nspname !~ '^(pg_catalog|information_schema|pg_toast.*|pg_temp.*)$'"
    else:
        of_schema = _compared("n.nspname", schema)
    return f"({of_schema} AND {_compared('c.relname', name)})"


def _compared(column: str, part: PatternPart) -> str:
    if part.plain:
        return f"{column} = {_literal(part.text)}"
    if part.text == "*":
        return "true"
    words = {"any": ".*", "one": "."}
    found = [
        words.get(kind) or (f"[{text}]" if kind == "set" else re.sub(r"(\W)", r"\\\1", text))
        for kind, text in signs(part.text)
    ]
    return f"{column} ~ {_literal('^' + ''.join(found) + '$')}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _in_format(identifier: str) -> str:
    """Escape an identifier for the text that ``format`` is given."""
    return identifier.replace("%", "%%").replace("'", "''")
