"""A connection to MySQL or MariaDB, and its errors in our words.

TLS is verified unless the url says otherwise. Every session runs under `SESSION`: settings that the
text of values depends on, and those that would end a long read. The server's messages name objects
and users; messages that may quote a value are not passed on.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from tideline.contract.errors import (
    InvariantBroken,
    Misconfigured,
    SourceLost,
    TidelineError,
    Unavailable,
)
from tideline.settings import SourceSettings
from tideline.settings.sources.mysql import MysqlAddress, mysql_address
from tideline_capture.sources.finding import START_OVER
from tideline_capture.sources.sockets import watch

SESSION: Mapping[str, str] = {
    "time_zone": "'+00:00'",
    "sql_mode": "''",
    "autocommit": "1",
    "wait_timeout": "86400",
    "net_read_timeout": "3600",
    "net_write_timeout": "3600",
    "sql_select_limit": "DEFAULT",
}
"""Session variables of every connection, as SQL. ``net_write_timeout``: while the store is away
nothing is read, and the server would end the stream after its default of 60 s. ``sql_mode``: with
PAD_CHAR_TO_FULL_LENGTH a CHAR would have another text than in the log."""

ANSWER_S = 600.0
_NO_TIME_LIMIT = {"mysql": "max_execution_time", "mariadb": "max_statement_time"}
_BUSY = {
    ER.CON_COUNT_ERROR,
    ER.SERVER_SHUTDOWN,
    ER.NORMAL_SHUTDOWN,
    ER.TOO_MANY_USER_CONNECTIONS,
    ER.USER_LIMIT_REACHED,
    ER.OUT_OF_RESOURCES,
}
_AWAY = {
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    CR.CR_SERVER_LOST_EXTENDED,
    CR.CR_CONN_HOST_ERROR,
    CR.CR_CONNECTION_ERROR,
    0,
}
_KILLED = {1317, 1927, 4031}
"""ER_QUERY_INTERRUPTED, MariaDB's ER_CONNECTION_KILLED, ER_CLIENT_INTERACTION_TIMEOUT."""
_PASSING = {ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK}
_SERVER_ERRORS = (1000, 2000)
"""Numbers of the server's errors about a statement; the temporary ones are listed above."""
_DENIED = {
    ER.DBACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    ER.PROCACCESS_DENIED_ERROR,
}
_REFUSED = {ER.ACCESS_DENIED_ERROR, 1698, 1396, 1862}
"""The others: ER_ACCESS_DENIED_NO_PASSWORD_ERROR, ER_CANNOT_USER, ER_MUST_CHANGE_PASSWORD_LOGIN."""
_LOCKED = {3118, 4151}
"""ER_ACCOUNT_HAS_BEEN_LOCKED of MySQL and of MariaDB."""
_NO_TLS = (
    "CERTIFICATE_VERIFY_FAILED",
    "certificate verify failed",
    "WRONG_VERSION_NUMBER",
    "SSL is required",
    "Hostname mismatch",
    "self-signed",
    "self signed",
    "UNSUPPORTED_PROTOCOL",
)
"""Errors that another try does not cure; a connection that breaks in the handshake is not one."""
_SECURE = "set ssl-mode in source.url as the server offers it: ssl-ca=/path/to/ca.pem names its own"
_INSECURE = "authority, ?ssl-mode=DISABLED goes without encryption on a trusted network"


def connect(
    source: SourceSettings,
    *,
    application_name: str,
    settings: Mapping[str, str] | None = None,
    answer_s: float = ANSWER_S,
) -> Any:
    """Open a PyMySQL connection in autocommit, with `SESSION` and ``settings`` in force.

    A statement that has no answer after ``answer_s`` seconds fails, and the connection with it.
    Raises Unavailable when the server is away or busy, Misconfigured when it refuses us.
    """
    address = mysql_address(source.url.get_secret_value(), source.secret())
    patience_s = max(2, round(source.connect_timeout_s))
    try:
        connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password.encode(),  # A text it would take for Latin-1.
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=patience_s,
            read_timeout=patience_s,
            write_timeout=patience_s,
            program_name=application_name,
            local_infile=False,
            **_tls(address),
        )
    except (pymysql.Error, OSError, RuntimeError) as error:
        raise translate(error) from None
    watch(connection._sock)
    try:
        _pin(connection, {**SESSION, **(settings or {})})
    except pymysql.Error as error:
        connection.close()
        raise query_failed(error) from None
    # Until here it was the login, to which the driver's own time-out for connecting does not apply.
    connection._read_timeout = connection._write_timeout = answer_s
    return connection


def flavour(connection: Any) -> str:
    """Return ``mysql`` or ``mariadb``, by the server's name for itself."""
    return "mariadb" if "mariadb" in connection.get_server_info().lower() else "mysql"


def version_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a server's version, as far as three: (8, 0, 15) of ``8.0.15-debug``."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _pin(connection: Any, settings: Mapping[str, str]) -> None:
    limit = _NO_TIME_LIMIT[flavour(connection)]
    assignments = [f"SESSION {name} = {value}" for name, value in {**settings, limit: "0"}.items()]
    with connection.cursor() as cursor:
        cursor.execute(f"SET {', '.join(assignments)}")


def _tls(address: MysqlAddress) -> dict[str, Any]:
    """Return PyMySQL's arguments for the url's ``ssl-mode``, in the meaning of MySQL's own
    clients."""
    if address.ssl_mode == "DISABLED":
        return {"ssl_disabled": True}
    try:
        context = ssl.create_default_context(cafile=address.ssl_ca)
    except (OSError, ssl.SSLError):
        raise Misconfigured(
            "the file of source.url's ssl-ca cannot be read as certificates", hint="correct ssl-ca"
        ) from None
    # The servers' own generated authorities lack extensions that the strict form wants.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = address.ssl_mode == "VERIFY_IDENTITY"
    if address.ssl_mode == "REQUIRED":
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}


def translate(error: Exception) -> TidelineError:
    """Translate an error that came while connecting."""
    number, text = _number(error), _message(error)
    if number in _BUSY or number in _KILLED:
        return Unavailable(f"the source is busy or stopping: {text}")
    if any(words in text for words in _NO_TLS):
        return Misconfigured(
            f"no verified TLS to the source: {text}", hint=f"{_SECURE} {_INSECURE}"
        )
    if number in _LOCKED:
        return Misconfigured(
            f"the source refuses us: {text}",
            hint="let an administrator unlock it: ALTER USER … ACCOUNT UNLOCK",
        )
    if number in _REFUSED | _DENIED:
        return Misconfigured(
            f"the source refuses us: {text}",
            hint="correct user and password (TIDELINE_SOURCE__PASSWORD) of source.url",
        )
    if isinstance(error, RuntimeError):  # PyMySQL's message that an auth method needs more
        return Misconfigured(
            f"the source's authentication method cannot be used: {text}", hint=f"{_SECURE}"
        )
    return Unavailable(
        f"the source cannot be reached: {text}", hint="start the server, or correct source.url"
    )


@contextmanager
def querying() -> Iterator[None]:
    """Translate the driver's errors of the block's statements by `query_failed`."""
    try:
        yield
    except pymysql.Error as error:
        raise query_failed(error) from None


def query_failed(error: Exception) -> TidelineError:
    """Translate an error of one of our statements; its text can hold row values."""
    number = _number(error)
    if number in _DENIED:
        return Misconfigured(
            f"the user may not do that: {_message(error)}", hint="`tideline doctor` shows the grant"
        )
    if number == ER.OPTION_PREVENTS_STATEMENT:
        return Unavailable(
            f"the source refuses writes: {_message(error)}",
            hint="point source.url at the primary, or set source.read_only = true",
        )
    if isinstance(error, OSError) or number in _AWAY | _KILLED | _BUSY | _PASSING:
        return Unavailable(f"the source did not answer: error {number}")
    is_ours = isinstance(error, (pymysql.OperationalError, pymysql.InterfaceError))
    if is_ours and not _SERVER_ERRORS[0] <= number < _SERVER_ERRORS[1]:
        return Unavailable(f"the source did not answer: {type(error).__name__} {number}")
    return InvariantBroken(f"a statement failed: {type(error).__name__} {number}")


def stream_failed(number: int, text: str) -> TidelineError:
    """Translate an error packet of the replication stream."""
    words = " ".join(text.split())
    if "max_allowed_packet" in words:
        return Misconfigured(
            f"the source cannot send an event: {words}",
            hint="SET GLOBAL max_allowed_packet = 1073741824",
        )
    if "truncated in the middle of event" in words:
        return SourceLost(
            f"a file of the source's log ends in the middle of an event: {words}",
            hint="a MariaDB that was killed, or whose disk was full, leaves its log like that;"
            f" whether it had promised what is missing is unknown: {START_OVER}",
        )
    if number == ER.MASTER_FATAL_ERROR_READING_BINLOG and not is_rival(words):
        return SourceLost(
            f"the source no longer holds what comes next in its log: {words}",
            hint=START_OVER,
        )
    if number in _DENIED or number == ER.ACCESS_DENIED_ERROR:
        return Misconfigured(
            f"the user may not read the log: {words}",
            hint="GRANT REPLICATION SLAVE ON *.* TO the user of source.url",
        )
    return Unavailable(f"the replication stream ended: error {number}, {words}")


def is_rival(words: str) -> bool:
    """Return whether the stream was ended because another client took our server id; the log itself
    is not gone."""
    return "same server_uuid/server_id" in words or "same server_id" in words


def _number(error: Exception) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _message(error: Exception) -> str:
    return " ".join(str(part) for part in error.args[-1:]).replace("\n", " ")
