"""Looks at a MySQL or MariaDB on behalf of `tideline doctor`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pymysql

from tideline.contract.manifest import Manifest
from tideline.contract.position import MysqlPosition
from tideline.settings import Settings
from tideline.settings.addresses import is_loopback, mysql_address, split_url
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.choices import choices_of
from tideline_capture.sources.finding import Finding, SecuredSession, check_clocks, check_session
from tideline_capture.sources.mysql.checks.preflight import PreflightPlan, run_preflight
from tideline_capture.sources.mysql.connect import connect, query_failed
from tideline_capture.sources.mysql.watermarks import read_clock, watermark_table


def check(settings: Settings, chain_end: Callable[[], ChainTail]) -> list[Finding]:
    """See `Preflight.check`."""
    source = settings.source
    plan = PreflightPlan(
        flavour="mariadb" if source.kind == "mariadb" else "mysql",
        tables=source.tables,
        exclude=source.exclude,
        marks=None if source.read_only else watermark_table(source.watermark_database),
        cascades=source.cascades,
        holds_xa=source.xa == "hold",
        chain=_place(chain_end().manifest),
        choices=choices_of(settings),
    )
    name = f"tideline doctor {settings.pipeline}"
    with closing(connect(source, application_name=name)) as connection:
        try:
            found = run_preflight(connection, plan)
            with connection.cursor() as cursor:
                return [*found, check_clocks(read_clock(cursor))]
        except pymysql.Error as broken:
            raise query_failed(broken) from None


def check_url(settings: Settings) -> list[Finding]:
    """See `Preflight.check_url`."""
    url = settings.source.url.get_secret_value()
    here = is_loopback(split_url(url).hostname or "localhost")
    mode = mysql_address(url, None).ssl_mode
    session = SecuredSession(here, mode != "DISABLED", mode == "VERIFY_IDENTITY")
    return list(check_session(session, mode="ssl-mode", verifies="VERIFY_IDENTITY"))


def _place(tail: Manifest | None) -> tuple[MysqlPosition, str] | None:
    """Return where the chain ends and on which server; None before it holds any of a binlog."""
    if tail is None or not isinstance(tail.position, MysqlPosition) or not tail.position.file:
        return None
    return tail.position, tail.identity.system_id
