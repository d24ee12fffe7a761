"""Preflight's checks of the tables: those that can be captured, those left out and why, and our
own.

A table that cannot be captured is *quarantined*: named, left out, and the others run. So that is a
warning; an error is anything that would make capture wrong or stop it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tideline.contract.patterns import matches
from tideline.contract.schema import TableId
from tideline_capture.sources.finding import Finding, error, how_many, nothing_chosen, ok, warning
from tideline_capture.sources.mysql.catalog.problems import UNTRANSACTIONAL, Policy
from tideline_capture.sources.mysql.checks.facts import (
    MysqlServerFacts,
    TableReport,
    WatermarkTableFacts,
)
from tideline_capture.sources.mysql.names import qualified, quoted
from tideline_capture.sources.mysql.watermarks import CREATE_DATABASE, CREATE_TABLE

_READ_ONLY = "or set source.read_only = true, which writes no watermarks"
_LISTED_MAX = 20


def check_tables(
    reports: Sequence[TableReport],
    visible: Sequence[TableId],
    patterns: Sequence[str],
    *,
    user: str,
    cascades: Policy,
) -> Iterator[Finding]:
    """Yield findings about the tables that the patterns name; ``visible`` are all that the user
    sees.

    A table without any grant is not even visible: a pattern that matches nothing may name one.
    """
    if not reports:
        yield _nothing_matches(visible, patterns, user)
        return
    captured = [one for one in reports if one.problem is None]
    yield how_many(len(captured), len(reports))
    for pattern in patterns:
        if not any(matches(one.table, [pattern]) for one in reports):
            text = f"{pattern} matches no table that the user may see"
            yield warning("pattern", text, _grant_select(pattern, user))
    for one in reports:
        if one.problem is not None:
            yield warning("quarantined", f"{one.sql} is left out: {one.problem}", one.hint)
    for one in captured:
        yield from _check_table(one, user, cascades)
    yield from _check_names(captured)


def _nothing_matches(visible: Sequence[TableId], patterns: Sequence[str], user: str) -> Finding:
    listed = ", ".join(str(table) for table in visible[:_LISTED_MAX]) or "none"
    more = f" and {len(visible) - _LISTED_MAX} more" if len(visible) > _LISTED_MAX else ""
    return nothing_chosen(
        f"the user {user} may see {listed}{more}",
        f'set source.tables, for example ["shop.*"]; or {_grant_select(patterns[0], user)}',
    )


def _grant_select(pattern: str, user: str) -> str:
    schema = pattern.rpartition(".")[0].strip('"')
    plain = schema and not set(schema) & set('*?["')
    return f"GRANT SELECT ON {quoted(schema) if plain else '`…`'}.* TO {user};"


def _check_table(one: TableReport, user: str, cascades: Policy) -> Iterator[Finding]:
    if not one.readable:
        text = f"the user {user} may not read all of {one.sql}"
        yield error("select", text, f"GRANT SELECT ON {one.sql} TO {user};")
    if one.engine.lower() in UNTRANSACTIONAL:
        yield warning(
            "engine",
            f"the engine of {one.sql} is {one.engine}: what a failed statement left behind, or a"
            " crash took away, is not in the log",
            f"ALTER TABLE {one.sql} ENGINE = InnoDB;",
        )
    if one.cascades_from and cascades == "redump":
        parents = ", ".join(qualified(parent) for parent in one.cascades_from)
        yield ok("cascades", f"{one.sql} is dumped again after changes of {parents}")


def _check_names(captured: Sequence[TableReport]) -> Iterator[Finding]:
    """Check tables whose warehouse addresses are the same on a store that ignores case."""
    groups: dict[str, list[str]] = defaultdict(list)
    for one in captured:
        groups[str(one.table).lower()].append(str(one.table))
    for names in groups.values():
        if len(names) > 1:
            text = (
                f"tables differ by case only, and may be one in the warehouse: {', '.join(names)}"
            )
            yield warning("table_case", text, "rename one, or add it to source.exclude")


def check_watermark_table(
    watermarks: WatermarkTableFacts, server: MysqlServerFacts
) -> Iterator[Finding]:
    """Check that our table of watermarks can be written, and is there or can be made.

    Without any grant on it one cannot see whether it is there: so the grants come first.
    """
    name = qualified(watermarks.table)
    if server.on("read_only"):
        fix = f"SET GLOBAL read_only = OFF; -- {_READ_ONLY}"
        yield error("read_only", "the server is read-only: it takes no watermarks", fix)
    if not watermarks.may_write:
        yield error(
            "watermark_grants",
            f"the user {server.user} may not read and write watermarks in {name}",
            f"GRANT SELECT, INSERT, UPDATE ON {quoted(watermarks.table.schema)}.* TO {server.user};"
            f" -- {_READ_ONLY}",
        )
    if watermarks.exists and not watermarks.sound:
        text = f"the table {name} is not of the form that Tideline makes"
        yield error("watermarks", text, f"DROP TABLE {name}; {create_statements(watermarks.table)}")
        return
    if not watermarks.exists and not watermarks.may_create:
        database = quoted(watermarks.table.schema)
        yield error(
            "watermarks",
            f"there is no table {name} for watermarks, and the user {server.user} may not make it",
            f"{create_statements(watermarks.table)}"
            f" -- or GRANT CREATE ON {database}.* TO {server.user};"
            f" {_READ_ONLY}",
        )
    elif watermarks.exists:
        yield ok("watermarks", f"the table {name} is there")
    else:
        yield ok("watermarks", f"Tideline will create the table {name}")


def create_statements(table: TableId) -> str:
    """Return the statements that make the table of watermarks by hand."""
    database = CREATE_DATABASE.format(database=quoted(table.schema))
    return f"{database}; {' '.join(CREATE_TABLE.format(table=qualified(table)).split())};"
