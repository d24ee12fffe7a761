"""The own keys of a MySQL or MariaDB source, and its url."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import unquote

from pydantic import Field

from tideline.settings.addresses import checked_port, one_of, query_of, split_url
from tideline.settings.base import Effect, Section

MysqlSslMode = Literal["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"]

_PORT = 3306
_QUERY = ("ssl-mode", "ssl-ca")


class MysqlSection(Section):
    """The keys of ``[source]`` that only MySQL and MariaDB have."""

    effect = Effect.LIVE

    read_only: Annotated[bool, Effect.RESTART] = False
    """MySQL, MariaDB: write no watermarks; a chunk's place in the log is the server's own position.
    For a source where the user may not write."""
    watermark_database: Annotated[str, Field(pattern=r"^[0-9A-Za-z_$]{1,64}$"), Effect.RESTART] = (
        "tideline"
    )
    """MySQL, MariaDB: the database that our table of watermarks lies in."""
    xa: Literal["hold", "refuse"] = "hold"
    """MySQL, MariaDB: an XA transaction's changes are held until its commit, which the log may hold
    much later; or the first one stops the pipeline, which then never waits for one."""
    cascades: Literal["refuse", "redump"] = "refuse"
    """MySQL, MariaDB: the log does not hold what a foreign key's CASCADE or SET NULL did to a child
    table. Such children are refused, or dumped again after each change of their parents."""
    on_gap: Literal["stop", "dump"] = "stop"
    """MySQL, MariaDB: when the log lacks changes (an incident, a statement instead of rows, rows
    without all columns), stop; or continue behind the gap and dump again the tables that it may
    concern."""


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


def check_mysql(url: str) -> None:
    """Raise ValueError, without any part of the url, for one that cannot be MySQL's or
    MariaDB's."""
    parts = split_url(url)
    if not parts.hostname or not parts.username:
        raise ValueError(f"must name a host and a user: {parts.scheme}://user@host:port/")
    address = mysql_address(url)
    if address.ssl_ca is not None and address.ssl_mode in ("DISABLED", "REQUIRED"):
        raise ValueError(f"has an ssl-ca, which ssl-mode={address.ssl_mode} does not look at")
    if query_of(parts).get("ssl-ca") == "":
        raise ValueError("must have a file's path in ssl-ca")


def mysql_address(url: str, password: str | None = None) -> MysqlAddress:
    """Return the parts of ``url``, with ``password`` in place of its own; ValueError as above."""
    parts = split_url(url)
    port = checked_port(parts)
    query = query_of(parts)
    if set(query) - set(_QUERY):
        raise ValueError(f"may have {' and '.join(_QUERY)} behind the ?, and nothing else")
    modes: tuple[MysqlSslMode, ...] = get_args(MysqlSslMode)
    authority = query.get("ssl-ca")
    return MysqlAddress(
        host=unquote(parts.hostname or ""),
        port=port or _PORT,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or "") if password is None else password,
        ssl_mode=one_of(modes, query.get("ssl-mode", "VERIFY_IDENTITY").upper(), "ssl-mode"),
        ssl_ca=None if authority is None else Path(authority),
    )
