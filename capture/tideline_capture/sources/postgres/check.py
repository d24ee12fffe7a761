"""Looks at a PostgreSQL on behalf of `tideline doctor`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import psycopg2

from tideline.contract.position import PostgresPosition
from tideline.settings import Settings
from tideline.settings.addresses import is_loopback, split_url
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.choices import choices_of
from tideline_capture.sources.finding import Finding, SecuredSession, check_clocks, check_session
from tideline_capture.sources.postgres.checks.preflight import run_preflight
from tideline_capture.sources.postgres.connect import connect, query_failed
from tideline_capture.sources.postgres.names import publication_name, slot_name
from tideline_capture.sources.postgres.watermarks import read_clock


def check(settings: Settings, chain_end: Callable[[], ChainTail]) -> list[Finding]:
    """See `Preflight.check`."""

    def chain_lsn() -> int | None:
        known, tail = chain_end()
        if not known:
            return None
        return tail.position.end_lsn if tail and isinstance(tail.position, PostgresPosition) else 0

    source = settings.source
    name = f"tideline doctor {settings.pipeline}"
    with closing(connect(source, application_name=name)) as connection:
        try:
            found = run_preflight(
                connection,
                tables=source.tables,
                exclude=source.exclude,
                slot=slot_name(settings),
                publication=publication_name(settings),
                chain_lsn=chain_lsn,
                choices=choices_of(settings),
            )
            with connection.cursor() as cursor:
                return [*found, check_clocks(read_clock(cursor))]
        except psycopg2.Error as broken:
            raise query_failed(broken) from None


def check_url(settings: Settings) -> list[Finding]:
    """See `Preflight.check_url`."""
    url = settings.source.url.get_secret_value()
    here = is_loopback(split_url(url).hostname or "localhost")
    mode = settings.source.postgres_tls().mode
    session = SecuredSession(here, mode != "disable", mode == "verify-full")
    return list(check_session(session, mode="sslmode", verifies="verify-full"))
