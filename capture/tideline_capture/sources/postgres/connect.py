"""A plain SQL connection to the source, and its errors in our words.

Once a server was contacted, libpq's text names host, port, user and database, which helps, and
never the password. Before that it may quote any piece of a broken url: then its text is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg2
import psycopg2.errors
import psycopg2.extensions

from tideline.contract.errors import (
    InvariantBroken,
    Misconfigured,
    SourceLost,
    TidelineError,
    Unavailable,
)
from tideline.settings import SourceSettings
from tideline.settings.sources.postgres import postgres_tls
from tideline_capture.sources.finding import START_OVER
from tideline_capture.sources.postgres.tls import arguments, no_tls
from tideline_capture.sources.postgres.types import PINNED
from tideline_capture.sources.sockets import (
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE_S,
    KEEPALIVE_INTERVAL_S,
    UNACKNOWLEDGED_MAX_S,
    answered,
)

_NOT_YET = (
    "starting up",
    "shutting down",
    "in recovery mode",
    "not yet accepting",
    "too many",
    "remaining connection slots",
    "terminating connection",
    "standby connections",
)
_LOST = (
    "can no longer get changes from replication slot",
    "can no longer access replication slot",
    "cannot read from logical replication slot",
    "requested WAL segment",
    "has been invalidated",
)
_NO_PUBLICATION = re.compile(r'publication "[^"]*" does not exist')
"""Changes of the time when there was none cannot be read, not even after it was made again."""
_OTHERWISE = """
SELECT w.name FROM unnest(%s::text[], %s::text[]) AS w(name, value)
WHERE pg_catalog.split_part(pg_catalog.current_setting(w.name), ',', 1) <> w.value ORDER BY 1
"""
_SESSION: Mapping[str, str] = {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "default_transaction_read_only": "off",
    "row_security": "off",
}
"""The role's or database's own settings must not end a long COPY, or the watermarks. Rows that a
policy hides from us are an error and not left out, and no policy's functions run as us."""
_KEEPALIVES: Mapping[str, Any] = {
    "keepalives_idle": KEEPALIVE_IDLE_S,
    "keepalives_interval": KEEPALIVE_INTERVAL_S,
    "keepalives_count": KEEPALIVE_COUNT,
    "tcp_user_timeout": UNACKNOWLEDGED_MAX_S * 1000,
}
_ADDRESS = (
    "write postgresql://user@host:port/database, special characters percent-encoded, and the"
    " password in TIDELINE_SOURCE__PASSWORD or a file"
)


class _PromptCursor(psycopg2.extensions.cursor):
    """A cursor whose connection ends when a statement has no answer after ``answer_s``."""

    def __init__(self, connection: Any, *rest: Any, answer_s: float) -> None:
        super().__init__(connection, *rest)
        self._answer_s = answer_s

    def execute(self, query: Any, vars: Any = None) -> None:
        with answered(self.connection.fileno(), self._answer_s):
            super().execute(query, vars)


def connect(
    source: SourceSettings,
    *,
    application_name: str,
    settings: Mapping[str, str] = PINNED,
    factory: Any = None,
    answer_s: float | None = None,
) -> Any:
    """Open a psycopg2 connection in autocommit, with ``settings`` in force from its start.

    With ``answer_s`` a statement that has no answer after so many seconds ends the connection.
    Raises Unavailable when the server is away or busy, Misconfigured when it refuses us.
    """
    dsn, tls = source.dsn(), postgres_tls(source.url.get_secret_value())
    patience_s = max(2, round(source.connect_timeout_s))
    try:
        connection = psycopg2.connect(
            dsn,
            connect_timeout=patience_s,
            application_name=application_name,
            client_encoding="UTF8",
            options=" ".join(
                f"-c {name}={value}" for name, value in {**_SESSION, **settings}.items()
            ),
            connection_factory=factory,
            **_KEEPALIVES,
            **arguments(tls),
        )
    except psycopg2.OperationalError as error:
        raise no_tls(str(error), tls) or translate(error) from None
    except psycopg2.Error:
        raise _not_an_address() from None
    if factory is None:
        connection.autocommit = True
    if answer_s is not None:
        connection.cursor_factory = partial(_PromptCursor, answer_s=answer_s)
    with answered(connection.fileno(), patience_s):
        _check_settings(connection)
    return connection


def _check_settings(connection: Any) -> None:
    """Check that the settings that the text of values depends on are in force: a pooler drops them
    silently, and every date or float could be another text then. Raises Misconfigured, naming those
    that are not."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(_OTHERWISE, (list(PINNED), list(PINNED.values())))
            names = [row[0] for row in cursor.fetchall()]
    except psycopg2.Error as error:
        connection.close()
        raise query_failed(error) from None
    if names:
        connection.close()
        raise Misconfigured(
            f"the server did not take settings of our session: {', '.join(names)}",
            hint="let source.url name PostgreSQL itself: a connection pooler leaves them out",
        )


def replication_failed(error: psycopg2.Error) -> TidelineError:
    """Translate an error of the stream: permanent loss, or a reason to reconnect."""
    text = " ".join(str(error).split())
    if any(words in text for words in _LOST) or _NO_PUBLICATION.search(text):
        return SourceLost(f"the source no longer holds what comes next: {text}", hint=START_OVER)
    return Unavailable(f"the replication stream ended: {text}")


@contextmanager
def querying() -> Iterator[None]:
    """Translate the driver's errors of the block's statements by `query_failed`."""
    try:
        yield
    except psycopg2.Error as error:
        raise query_failed(error) from None


def query_failed(error: psycopg2.Error) -> TidelineError:
    """Translate an error of one of our statements; its text can hold row values."""
    if isinstance(error, psycopg2.errors.InsufficientPrivilege):
        return Misconfigured(
            f"the role may not do that: {error.diag.message_primary}", hint="grant it"
        )
    if isinstance(error, (psycopg2.OperationalError, psycopg2.InterfaceError)):
        return Unavailable(f"the source did not answer: {type(error).__name__} {error.pgcode}")
    return InvariantBroken(f"a statement failed: {type(error).__name__} {error.pgcode}")


def translate(error: psycopg2.OperationalError) -> TidelineError:
    """Translate an error that came while connecting."""
    text = " ".join(str(error).split())
    if "could not translate host name" in text:
        return Unavailable("the source's host name cannot be resolved", hint=_ADDRESS)
    if not text.startswith(("connection to server", "connection failed")):
        return _not_an_address()
    if "permission denied to start WAL sender" in text:
        return Misconfigured(
            "the role may not replicate",
            hint="ALTER ROLE … REPLICATION, or on RDS GRANT rds_replication TO …",
        )
    refused = "FATAL" in text and not any(words in text for words in _NOT_YET)
    if refused or "no password supplied" in text:
        return Misconfigured(
            f"the source refuses us: {text}",
            hint="correct user, password (TIDELINE_SOURCE__PASSWORD) and database of source.url",
        )
    if "too many connections" in text or "connection slots" in text:
        return Unavailable(
            f"the source takes no more connections: {text}",
            hint="end some that are not needed, or raise max_connections, or the role's limit",
        )
    return Unavailable(
        f"the source cannot be reached: {text}", hint="start the server, or correct source.url"
    )


def _not_an_address() -> Misconfigured:
    return Misconfigured("source.url is not an address of PostgreSQL", hint=_ADDRESS)
