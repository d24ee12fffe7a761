"""The parts of urls that name a server, split and checked; no error quotes any of a url.

TLS is verified unless the url says otherwise: ``sslmode`` and ``sslrootcert`` with PostgreSQL,
``ssl-mode`` and ``ssl-ca`` with MySQL and MariaDB, ``rediss://`` and its ``ssl_…`` with Redis. No
address is an exception, not even loopback: each url decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

_Word = TypeVar("_Word", bound=str)


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


def checked_port(parts: SplitResult) -> int | None:
    """Return the port, None without one; ValueError for one that cannot be."""
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("must have a port from 1 to 65535, or none")
    return port


def check_https(url: str, form: str, *, of: str, access: str, alone: bool = False) -> None:
    """Raise ValueError, without any part of ``url``, unless it is an address of ``form``: with a
    host, without credentials (``access`` says what has them), and with TLS unless it is ``of``
    some server on this machine; ``alone``: nothing is behind its path."""
    parts = split_url(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"must be {form}")
    checked_port(parts)
    if "@" in parts.netloc:
        raise ValueError(f"must not hold credentials: {access}")
    if alone and (parts.query or parts.fragment):
        raise ValueError(f"must be {form}, with nothing behind the path")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(f"must be https://, except for {of} on this machine")


def query_of(parts: SplitResult) -> Mapping[str, str]:
    """Return what is behind the ``?``, by key; ValueError for a key that is there twice."""
    found = parse_qsl(parts.query, keep_blank_values=True)
    query = dict(found)
    if len(query) < len(found):
        raise ValueError("has a key twice behind the ?")
    return query


def one_of(allowed: tuple[_Word, ...], text: str, what: str) -> _Word:
    """Return the one of ``allowed`` that ``text`` is; ValueError when the value of ``what`` is
    none."""
    for one in allowed:
        if text == one:
            return one
    raise ValueError(f"must have an {what} of {', '.join(allowed)}")


def is_loopback(host: str) -> bool:
    """Return whether traffic to ``host`` stays on this machine: ``localhost``, or an address of
    loopback."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_ip_address(host: str) -> bool:
    """Return whether ``host`` is an address and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
