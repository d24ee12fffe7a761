"""Urls of servers: their allowed parts, and the TLS that each asks for.

TLS is verified unless the url says otherwise: ``sslmode`` and ``sslrootcert`` with PostgreSQL,
``ssl-mode`` and ``ssl-ca`` with MySQL and MariaDB, ``rediss://`` and its ``ssl_…`` with Redis. No
address is an exception, not even loopback: each url decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, TypeVar, get_args
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

MysqlSslMode = Literal["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"]
PostgresSslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]

_MYSQL_PORT = 3306
_MYSQL_QUERY = ("ssl-mode", "ssl-ca")
_BEFORE_THE_QUERY = ("host", "port", "user", "password", "dbname", "service")
"""Parameters that libpq would take from behind the ``?`` instead: the url would name another server
to libpq than to its reader, or a password that is not hidden."""
_REDIS_SCHEMES = ("redis", "rediss", "unix")
_REDIS_QUERY = ("db",)
_REDIS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_REDIS_TLS_QUERY = ("ssl_cert_reqs", "ssl_check_hostname", *_REDIS_FILES)
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")
_Mode = TypeVar("_Mode", bound=str)


@dataclass(frozen=True, slots=True)
class MysqlAddress:
    """The address of a MySQL or MariaDB, and its TLS.

    ``ssl_mode`` has the meaning of the MySQL client's ``--ssl-mode``, ``ssl_ca`` that of its
    ``--ssl-ca`` (None: the machine's own authorities).
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    ssl_mode: MysqlSslMode
    ssl_ca: Path | None


@dataclass(frozen=True, slots=True)
class PostgresTls:
    """The TLS that a PostgreSQL url asks for, in libpq's terms; ``root_certificate`` is None where
    it names none."""

    mode: PostgresSslMode
    root_certificate: str | None


def split_url(url: str) -> SplitResult:
    """Split ``url``. The library's ValueError can quote the password; this one does not."""
    try:
        url.encode()
        return urlsplit(url)
    except ValueError:
        raise ValueError("is not a url: special characters are to be percent-encoded") from None


def check_host(parts: SplitResult) -> None:
    """Raise ValueError, without any part of the url, for a port or host that cannot be one."""
    try:
        valid = parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("has a port that is not a number from 1 to 65535")
    if any(char.isspace() or not char.isprintable() for char in parts.netloc):
        raise ValueError("has a host with a space or an unprintable character")


def is_loopback(host: str) -> bool:
    """Return whether traffic to ``host`` stays on this machine: ``localhost``, or an address of
    loopback."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_postgres(url: str) -> None:
    """Raise ValueError, without any part of the url, for one that cannot be PostgreSQL's or names
    several servers."""
    parts = split_url(url)
    if not parts.hostname or not parts.path.strip("/"):
        raise ValueError("must name a host and a database: postgresql://user@host:port/database")
    if "," in parts.netloc.rpartition("@")[2]:
        raise ValueError(
            "must name one host: a name or address that follows the primary serves for several"
        )
    _check_port(parts)
    query = _query(parts.query)
    if set(query) & set(_BEFORE_THE_QUERY):
        raise ValueError("must say host, port, user, password and database before the ?")
    tls = postgres_tls(url)
    if tls.root_certificate is not None and tls.mode in ("disable", "allow", "prefer"):
        raise ValueError(f"has an sslrootcert, which sslmode={tls.mode} does not look at")
    if tls.root_certificate == "":
        raise ValueError("must have a file's path, or system, in sslrootcert")
    if tls.root_certificate == "system" and tls.mode != "verify-full":
        raise ValueError("may have sslrootcert=system with sslmode=verify-full only")


def postgres_tls(url: str) -> PostgresTls:
    """Return the TLS that ``url`` asks for; ValueError for an unknown ``sslmode``."""
    query = _query(split_url(url).query)
    modes: tuple[PostgresSslMode, ...] = get_args(PostgresSslMode)
    mode = _one_of(modes, query.get("sslmode", "verify-full"), "sslmode")
    return PostgresTls(mode, query.get("sslrootcert"))


def check_mysql(url: str) -> None:
    """Raise ValueError, without any part of the url, for one that cannot be MySQL's or
    MariaDB's."""
    parts = split_url(url)
    if not parts.hostname or not parts.username:
        raise ValueError(f"must name a host and a user: {parts.scheme}://user@host:port/")
    address = mysql_address(url, None)
    if address.ssl_ca is not None and address.ssl_mode in ("DISABLED", "REQUIRED"):
        raise ValueError(f"has an ssl-ca, which ssl-mode={address.ssl_mode} does not look at")
    if _query(parts.query).get("ssl-ca") == "":
        raise ValueError("must have a file's path in ssl-ca")


def mysql_address(url: str, password: str | None) -> MysqlAddress:
    """Return the parts of ``url``, with ``password`` in place of its own; ValueError as above."""
    parts = split_url(url)
    port = _check_port(parts)
    query = _query(parts.query)
    if set(query) - set(_MYSQL_QUERY):
        raise ValueError(f"may have {' and '.join(_MYSQL_QUERY)} behind the ?, and nothing else")
    modes: tuple[MysqlSslMode, ...] = get_args(MysqlSslMode)
    authority = query.get("ssl-ca")
    return MysqlAddress(
        host=unquote(parts.hostname or ""),
        port=port or _MYSQL_PORT,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or "") if password is None else password,
        ssl_mode=_one_of(modes, query.get("ssl-mode", "VERIFY_IDENTITY").upper(), "ssl-mode"),
        ssl_ca=None if authority is None else Path(authority),
    )


def check_redis(url: str) -> None:
    """Raise ValueError, without any part of the url, for one that cannot be Redis's."""
    parts = split_url(url)
    if parts.scheme not in _REDIS_SCHEMES:
        raise ValueError("must be redis://host:port/0, or rediss:// with TLS, or unix:///path")
    _check_port(parts)
    query = _query(parts.query)
    known = _REDIS_QUERY + (_REDIS_TLS_QUERY if parts.scheme == "rediss" else ())
    if set(query) - set(known):
        tls = f", with rediss:// {', '.join(_REDIS_TLS_QUERY)}, too"
        raise ValueError(f"may have {', '.join(_REDIS_QUERY)} behind the ?{tls}, and nothing else")
    if not query.get("db", "0").isdecimal():
        raise ValueError("must have a number in db")
    _one_of(("none", "optional", "required"), query.get("ssl_cert_reqs", "none"), "ssl_cert_reqs")
    _one_of(_YES + _NO, query.get("ssl_check_hostname", "true").lower(), "ssl_check_hostname")


def redis_files(url: str) -> Mapping[str, str]:
    """Return the files that ``url`` names, by parameter."""
    query = _query(split_url(url).query)
    return {name: query[name] for name in _REDIS_FILES if name in query}


def redis_doubt(url: str) -> tuple[str, str] | None:
    """Return the doubt about the server at ``url``, and its remedy; None where traffic stays on
    this machine, or the server is verified."""
    parts = split_url(url)
    if parts.scheme == "unix" or is_loopback(parts.hostname or "localhost"):
        return None
    if parts.scheme == "redis":
        return "is not encrypted", "write rediss:// in control.url, with a server that has TLS"
    query = _query(parts.query)
    verified = query.get("ssl_cert_reqs", "required") == "required"
    if verified and query.get("ssl_check_hostname", "true").lower() in _YES:
        return None
    fix = "take ssl_cert_reqs and ssl_check_hostname out of control.url; ssl_ca_certs=/path/to/ca"
    return "is not verified: who answers may be another", f"{fix}.pem names its authority"


def _check_port(parts: SplitResult) -> int | None:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("must have a port from 1 to 65535, or none")
    return port


def _query(text: str) -> Mapping[str, str]:
    found = parse_qsl(text, keep_blank_values=True)
    query = dict(found)
    if len(query) < len(found):
        raise ValueError("has a key twice behind the ?")
    return query


def _one_of(allowed: tuple[_Mode, ...], text: str, what: str) -> _Mode:
    for one in allowed:
        if text == one:
            return one
    raise ValueError(f"must have an {what} of {', '.join(allowed)}")
