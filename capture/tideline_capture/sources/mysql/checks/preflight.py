"""Checks of a MySQL or MariaDB source before capture runs: findings, each with its fix.

Nothing is changed at the source. The rules come from facts that cost others their data: rows that a
log in statement form, with partial images or without metadata does not hold; commits that are in
the log before they are visible; files that the server removes before they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tideline.contract.errors import Misconfigured
from tideline.contract.manifest import Manifest
from tideline.contract.position import MysqlPosition
from tideline.contract.schema import TableId
from tideline.settings import Settings
from tideline.settings.addresses import is_loopback, split_url
from tideline.settings.sources.mysql import MysqlSection, mysql_address
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.finding import (
    START_OVER,
    Finding,
    SecuredSession,
    check_clocks,
    check_session,
    error,
    ok,
    warning,
)
from tideline_capture.sources.key_configuration import (
    KeyConfigurations,
    default_key,
    key_configurations_of,
)
from tideline_capture.sources.mysql.catalog.problems import Policy
from tideline_capture.sources.mysql.catalog.tables import Flavour
from tideline_capture.sources.mysql.checks.facts import (
    MysqlServerFacts,
    PositionFacts,
    read_names,
    read_position_facts,
    read_reports,
    read_server,
    read_watermark_table,
)
from tideline_capture.sources.mysql.checks.log import check_log, check_replica
from tideline_capture.sources.mysql.checks.tables import check_tables, check_watermark_table
from tideline_capture.sources.mysql.connect import connect, querying
from tideline_capture.sources.mysql.names import quoted
from tideline_capture.sources.mysql.snapshot.prepared import ORDERED_SINCE
from tideline_capture.sources.mysql.watermarks import read_clock, watermark_table

VERSION_MIN = {"mysql": (8, 0), "mariadb": (10, 6)}
_NAMES = {"mysql": "MySQL", "mariadb": "MariaDB"}


@dataclass(frozen=True, slots=True)
class PreflightPlan:
    """The pipeline's intended use of the source.

    ``tables`` and ``exclude`` are the settings' patterns. ``watermarks`` is our table of
    watermarks, None when none is written. ``holds_xa``: XA transactions are captured. ``chain`` is
    where the chain stands, and of which server, by its own name. ``key_configurations``: the key
    configuration of tables.
    """

    flavour: Flavour
    tables: Sequence[str]
    exclude: Sequence[str]
    watermarks: TableId | None
    cascades: Policy = "refuse"
    holds_xa: bool = True
    chain: tuple[MysqlPosition, str] | None = None
    key_configurations: KeyConfigurations = default_key


def run_preflight(connection: Any, plan: PreflightPlan) -> list[Finding]:
    """Return all findings about the server behind ``connection`` (PyMySQL, autocommit).

    Raises Misconfigured for an invalid pattern, and PyMySQL's error when the connection breaks.
    """
    server = read_server(connection)
    ours = [] if plan.watermarks is None else [plan.watermarks]
    visible = read_names(connection, ["*.*"], [], ours)
    tables = read_names(connection, plan.tables, plan.exclude, ours)
    reports = read_reports(
        connection, tables, cascades=plan.cascades, key_configurations=plan.key_configurations
    )
    found = [*check_server(server, plan), *check_log(server, read_only=plan.watermarks is None)]
    found += check_replica(server)
    if plan.holds_xa and server.prepared is None and server.version < ORDERED_SINCE:
        found.append(_unseen_commits(server.user))
    found += _check_filters(server, {table.schema for table in (*tables, *ours)})
    found += check_tables(reports, visible, plan.tables, user=server.user, cascades=plan.cascades)
    if plan.watermarks is not None:
        found += check_watermark_table(read_watermark_table(connection, plan.watermarks), server)
    if plan.chain is not None:
        position, system_id = plan.chain
        found_at = read_position_facts(
            connection, position, same_server=system_id == server.system_id
        )
        found += check_position(position, found_at)
    elif server.prepared:
        found.append(_prepared(server.prepared))
    return found


def require_settings(
    connection: Any, *, read_only: bool, databases: AbstractSet[str] = frozenset()
) -> None:
    """Raise Misconfigured for the first setting under which the log cannot be captured.

    ``databases`` are those whose changes it must hold. Cheap: it runs for every new connection, as
    anyone may change the settings while the server runs.
    """
    server = read_server(connection)
    found = [*check_log(server, read_only=read_only), *check_replica(server)]
    found += _check_filters(server, databases)
    for finding in found:
        if finding.level == "error":
            raise Misconfigured(finding.message, hint=finding.fix)


def check_server(server: MysqlServerFacts, plan: PreflightPlan) -> Iterator[Finding]:
    """Check version, kind, encryption, and the grants to read the log."""
    name = f"{_NAMES[server.flavour]} {server.version_text}"
    least = VERSION_MIN[server.flavour]
    if server.version < least:
        newer = ".".join(map(str, least))
        yield error("version", f"{name} is too old", f"upgrade to {newer} or newer")
    else:
        yield ok("version", name)
    if server.flavour != plan.flavour:
        right = f"let source.url begin with {server.flavour}://"
        yield error("flavour", f"the server is {_NAMES[server.flavour]}", right)
    yield from check_session(server.session, mode="ssl-mode", verifies="VERIFY_IDENTITY")
    yield _grant(server, "REPLICATION SLAVE", "stream the log", server.may_stream)
    yield _grant(server, "REPLICATION CLIENT", "see where the log stands", server.may_see_log)


def _grant(server: MysqlServerFacts, grant: str, purpose: str, granted: bool) -> Finding:
    name = grant.lower().replace(" ", "_")
    if granted:
        return ok(name, f"the user {server.user} may {purpose}")
    text = f"the user {server.user} may not {purpose}"
    return error(name, text, f"GRANT {grant} ON *.* TO {server.user};")


def _check_filters(server: MysqlServerFacts, databases: AbstractSet[str]) -> Iterator[Finding]:
    """Check the databases that the log leaves out: ours, and those of captured tables, must be in
    it."""
    if server.do_db or server.ignore_db:
        logged = set(server.do_db) if server.do_db else databases - set(server.ignore_db)
        missing = sorted(databases - logged)
        option = "binlog_do_db" if server.do_db else "binlog_ignore_db"
        if missing:
            shown = ", ".join(map(quoted, missing))
            yield error(
                "filters",
                f"{option} keeps changes of databases out of the log: {shown}",
                f"take {option} out of the server's configuration, and restart the server",
            )
        else:
            yield ok("filters", f"{option} is set; the log holds the databases that are captured")


def check_position(position: MysqlPosition, found_at: PositionFacts) -> Iterator[Finding]:
    """Check that the server knows what the chain holds, and that its log still has what comes
    after."""
    if found_at.known is False:
        text = f"the server lacks transactions that the chain holds, up to {position}"
        yield error("position", f"{text}: it has another history", START_OVER)
    elif found_at.held:
        yield ok("position", f"the log holds what comes after {position}")
    elif found_at.held is None:
        yield warning("position", f"whether the log holds what comes after {position} is not known")
    else:
        text = f"the server has removed what its log held after {position}"
        yield error("position", f"{text}: it is lost", START_OVER)


def _unseen_commits(user: str) -> Finding:
    return warning(
        "xa_recover",
        "the user may not see which XA transactions are being committed: dumps end in an error"
        " once the server has committed one",
        f'GRANT XA_RECOVER_ADMIN ON *.* TO {user}; -- or set source.xa = "refuse"',
    )


def _prepared(count: int) -> Finding:
    return warning(
        "prepared",
        f"{count} prepared XA transactions are open: their changes are in the log before its"
        " reading begins, and are missed if they commit after it",
        "XA RECOVER; -- then XA COMMIT or XA ROLLBACK each, before capture starts",
    )


def check(settings: Settings, chain_end: Callable[[], ChainTail]) -> list[Finding]:
    """See `Preflight.check`."""
    source = settings.source
    own = source.section(MysqlSection)
    plan = PreflightPlan(
        flavour="mariadb" if source.kind == "mariadb" else "mysql",
        tables=source.tables,
        exclude=source.exclude,
        watermarks=None if own.read_only else watermark_table(own.watermark_database),
        cascades=own.cascades,
        holds_xa=own.xa == "hold",
        chain=_place(chain_end().manifest),
        key_configurations=key_configurations_of(settings),
    )
    name = f"tideline doctor {settings.pipeline}"
    with closing(connect(source, application_name=name)) as connection, querying():
        found = run_preflight(connection, plan)
        with connection.cursor() as cursor:
            return [*found, check_clocks(read_clock(cursor))]


def check_url(settings: Settings) -> list[Finding]:
    """See `Preflight.check_url`."""
    url = settings.source.url.get_secret_value()
    here = is_loopback(split_url(url).hostname or "localhost")
    mode = mysql_address(url).ssl_mode
    session = SecuredSession(here, mode != "DISABLED", mode == "VERIFY_IDENTITY")
    return list(check_session(session, mode="ssl-mode", verifies="VERIFY_IDENTITY"))


def _place(tail: Manifest | None) -> tuple[MysqlPosition, str] | None:
    """Return where the chain ends and on which server; None before it holds any of a binlog."""
    if tail is None or not isinstance(tail.position, MysqlPosition) or not tail.position.file:
        return None
    return tail.position, tail.identity.system_id
