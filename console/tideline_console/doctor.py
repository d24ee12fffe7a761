"""``tideline doctor``: look at everything that capture and merge need, before anything runs.

Nothing is changed but a probe object in the store and one in the warehouse's folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

import psycopg2
import pymysql

from tideline.contract.clocks import apart
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.manifest import Manifest
from tideline.contract.position import MysqlPosition, PostgresPosition, SourceIdentity
from tideline.settings import Settings
from tideline.settings.addresses import is_loopback, mysql_address, split_url
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_capture.sources.choices import choices_of
from tideline_capture.sources.finding import Finding, Session, check_session, error, ok, warning
from tideline_capture.sources.mysql import connect as mysql_connect
from tideline_capture.sources.mysql import watermarks as mysql_marks
from tideline_capture.sources.mysql.checks import preflight as mysql_preflight
from tideline_capture.sources.mysql.source import MysqlSource
from tideline_capture.sources.postgres import connect as postgres_connect
from tideline_capture.sources.postgres import watermarks as postgres_marks
from tideline_capture.sources.postgres.checks import preflight as postgres_preflight
from tideline_capture.sources.postgres.names import publication_name, slot_name
from tideline_capture.sources.postgres.source import PostgresSource
from tideline_console.checks import (
    attempt,
    check_control,
    check_control_tls,
    check_java,
    check_store,
    check_store_tls,
    check_warehouse,
    impatient,
    told,
)
from tideline_console.modes import check_modes

_STAND_IN = "right after a failover to its replica; else point source.url at the right server"


def run(settings: Settings, path: Path) -> int:
    """Print every finding with its fix; 0 when none of them keeps capture from starting. ``path``:
    the file that the settings are from."""
    found = chain(examine(settings), check_modes(settings, path))
    return told(found, good="capture may start", bad="capture may not start")


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings, source first, each as soon as it is known."""
    source = attempt("source", lambda: check_source(settings))
    yield from source
    if any(one.level == "error" for one in source):
        if not any(one.name == "encryption" for one in source):
            yield from check_source_tls(settings)
    else:
        yield from attempt("identity", lambda: check_identity(settings))
    yield from attempt("store", lambda: check_store(settings))
    yield from check_store_tls(settings)
    yield from map(_without_queue, attempt("control", lambda: check_control(settings)))
    yield from check_control_tls(settings)
    yield from attempt("warehouse", lambda: check_warehouse(settings))
    yield from attempt("java", check_java, grave=False)


def check_source_tls(settings: Settings) -> Iterator[Finding]:
    """What the url asks for, where no session has come about that could be looked at."""
    source = settings.source
    url = source.url.get_secret_value()
    here = is_loopback(split_url(url).hostname or "localhost")
    if source.kind == "postgres":
        mode = source.postgres_tls().mode
        session = Session(here, mode != "disable", mode == "verify-full")
        yield from check_session(session, mode="sslmode", verifies="verify-full")
    else:
        asked = mysql_address(url, None).ssl_mode
        session = Session(here, asked != "DISABLED", asked == "VERIFY_IDENTITY")
        yield from check_session(session, mode="ssl-mode", verifies="VERIFY_IDENTITY")


def _without_queue(found: Finding) -> Finding:
    """A queue that does not answer keeps capture from nothing but requests."""
    if found.level != "error":
        return found
    text = f"{found.message}: capture runs without it, dumps and proofs cannot be asked for"
    return warning(found.name, text, found.fix)


def check_source(settings: Settings) -> list[Finding]:
    if settings.source.kind == "postgres":
        return _check_postgres(settings)
    _, tail = _tail(settings)
    return _check_mysql(settings, tail)


def _check_postgres(settings: Settings) -> list[Finding]:
    source = settings.source

    def chain_lsn() -> int | None:
        known, tail = _tail(settings)
        return _lsn(tail) if known else None

    with closing(
        postgres_connect.connect(source, application_name=_application(settings))
    ) as connection:
        try:
            found = postgres_preflight.run_preflight(
                connection,
                tables=source.tables,
                exclude=source.exclude,
                slot=slot_name(settings),
                publication=publication_name(settings),
                chain_lsn=chain_lsn,
                choices=choices_of(settings),
            )
            with connection.cursor() as cursor:
                return [*found, check_clocks(postgres_marks.read_clock(cursor))]
        except psycopg2.Error as broken:
            raise postgres_connect.query_failed(broken) from None


def _check_mysql(settings: Settings, tail: Manifest | None) -> list[Finding]:
    source = settings.source
    plan = mysql_preflight.Plan(
        flavour="mariadb" if source.kind == "mariadb" else "mysql",
        tables=source.tables,
        exclude=source.exclude,
        marks=None if source.read_only else mysql_marks.watermark_table(source.watermark_database),
        cascades=source.cascades,
        holds_xa=source.xa == "hold",
        chain=_place(tail),
        choices=choices_of(settings),
    )
    with closing(
        mysql_connect.connect(source, application_name=_application(settings))
    ) as connection:
        try:
            found = mysql_preflight.run_preflight(connection, plan)
            with connection.cursor() as cursor:
                return [*found, check_clocks(mysql_marks.read_clock(cursor))]
        except pymysql.Error as broken:
            raise mysql_connect.query_failed(broken) from None


def check_clocks(source_us: int) -> Finding:
    """The source's clock (µs UTC) by this machine's."""
    words = apart(source_us, time.time_ns() // 1000)
    if words is None:
        return ok("clocks", "the source's clock and this machine's agree")
    fix = "keep both by NTP: of freshness no more is claimed than both clocks allow"
    return warning("clocks", words, fix)


def _place(tail: Manifest | None) -> tuple[MysqlPosition, str] | None:
    """Where the chain ends and on which server; None before it holds any of a binlog."""
    if tail is None or not isinstance(tail.position, MysqlPosition) or not tail.position.file:
        return None
    return tail.position, tail.identity.system_id


def _application(settings: Settings) -> str:
    return f"tideline doctor {settings.pipeline}"


def check_identity(settings: Settings) -> list[Finding]:
    """Whether the source is the server that the chain was read from, or may stand in for it."""
    known, tail = _tail(settings)
    if not known:
        text = "whether the chain is of this source is not known: the store cannot be asked"
        return [warning("identity", text, "see the finding about the store")]
    if tail is None:
        return [ok("identity", "the chain is empty: it begins with this source")]
    is_postgres = settings.source.kind == "postgres"
    source = PostgresSource(settings) if is_postgres else MysqlSource(settings)
    found = source.identity()
    if found == tail.identity:
        return [ok("identity", "the source is the server that the chain is of")]
    text = f"the source is {_server(found)}, the chain is of {_server(tail.identity)}"
    place = _place(tail)
    if found.kind == tail.identity.kind and place is not None and place[0].gtids:
        return [warning("identity", f"{text}: capture goes on by GTID", _STAND_IN)]
    fix = "point source.url at the right server, or start the pipeline anew under another name"
    return [error("identity", text, fix)]


def _server(identity: SourceIdentity) -> str:
    if identity.kind != "postgres":
        return f"{identity.kind} {identity.system_id}"
    return f"{identity.system_id}, timeline {identity.timeline}, database {identity.database}"


def _tail(settings: Settings) -> tuple[bool, Manifest | None]:
    """Whether the store could be asked (its own check says why not), and the chain's end."""
    try:
        link = Chain(open_store(impatient(settings.store)), settings.pipeline).tail()
    except (Unavailable, Misconfigured):
        return False, None
    return True, None if link is None else link.manifest


def _lsn(tail: Manifest | None) -> int:
    return tail.position.end_lsn if tail and isinstance(tail.position, PostgresPosition) else 0
