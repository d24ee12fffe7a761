"""The source: where the database is, and what of it is captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from tideline.contract.errors import InvariantBroken
from tideline.settings.base import Effect, Seconds, Section
from tideline.settings.secrets import hidden, known, secret_of, with_password

SourceKind = Literal["postgres", "mysql", "mariadb"]
SslMode = Literal["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"]

_KINDS: Mapping[str, SourceKind] = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mariadb",
}
_MYSQL_PORT = 3306
_MYSQL_QUERY = ("ssl-mode", "ssl-ca")


@dataclass(frozen=True, slots=True)
class MysqlAddress:
    """Where a MySQL or MariaDB is and how it is reached.

    ``ssl_mode`` has the meaning of the MySQL client's ``--ssl-mode``, ``ssl_ca`` that of its
    ``--ssl-ca`` (None: the machine's own authorities).
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    ssl_mode: SslMode
    ssl_ca: Path | None


class Source(Section):
    """The database that is captured: PostgreSQL, MySQL or MariaDB, by the url's scheme."""

    effect = Effect.LIVE

    url: Annotated[SecretStr, Effect.RESTART]
    """``postgresql://user@host:port/database``, or ``mysql://user@host:port/`` and ``mariadb://…``
    with ``?ssl-mode=…&ssl-ca=…``. A database in the latter two is not looked at: ``tables`` names
    them, and the log covers all."""
    password: SecretStr | None = None
    """The password, if it is not in the url; better in TIDELINE_SOURCE__PASSWORD."""
    password_file: Path | None = None
    """A file that holds the password and nothing else. Only the worker, `tideline doctor` and the
    demo read it: to Airflow, `plan`, `merge` and the like the source is a name."""
    tables: tuple[str, ...] = ("*.*",)
    """What is captured: shell patterns over `schema.table` (`public.*`)."""
    exclude: tuple[str, ...] = ()
    """What is not, of those."""
    initial: Literal["dump", "log-only"] = "dump"
    """Whether a table that is new to the pipeline is dumped; or only its changes are captured, from
    a sequence and a time on that the worker's log and `tideline status` say. One whose creation is
    in the log (MySQL, MariaDB) is captured from its first row on, and needs no dump."""
    schema_policy: Literal["auto", "ask"] = "auto"
    """Whether a table found unproven is dumped at once, or only marked."""
    connect_timeout_s: Seconds = 10.0
    """For each connection to the source."""
    slot: Annotated[str | None, Effect.RESTART] = None
    """PostgreSQL: the replication slot's name; None: made from the pipeline's name."""
    publication: Annotated[str | None, Effect.RESTART] = None
    """PostgreSQL: the publication's name; None: made from the pipeline's name."""
    read_only: Annotated[bool, Effect.RESTART] = False
    """MySQL, MariaDB: write no watermarks; a chunk's place in the log is told by the server's own
    position. For a source where the user may not write."""
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
    without all columns), stop; or go on behind the gap and dump anew what it may concern."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: SecretStr) -> SecretStr:
        text = url.get_secret_value()
        kind = _KINDS.get(urlsplit(text).scheme)
        if kind is None:
            raise ValueError(
                "must be postgresql://user@host:port/database, mysql://user@host:port/ or "
                "mariadb://user@host:port/"
            )
        if kind == "postgres":
            _check_postgres(text)
        else:
            _check_mysql(text)
        return url

    @field_validator("slot", "publication")
    @classmethod
    def _postgres_only(cls, value: object, info: ValidationInfo) -> object:
        return _only_of(("postgres",), "PostgreSQL", value, info)

    @field_validator("read_only", "watermark_database", "xa", "cascades", "on_gap")
    @classmethod
    def _mysql_only(cls, value: object, info: ValidationInfo) -> object:
        return _only_of(("mysql", "mariadb"), "MySQL and MariaDB", value, info)

    @property
    def kind(self) -> SourceKind:
        """Which kind of server the url names."""
        return _KINDS[urlsplit(self.url.get_secret_value()).scheme]

    @property
    def user(self) -> str:
        """The user that the url names; "" for none."""
        return unquote(urlsplit(self.url.get_secret_value()).username or "")

    def mysql_address(self) -> MysqlAddress:
        """The parts of a MySQL or MariaDB url, with the password from the setting or the file.

        Raises InvariantBroken for a PostgreSQL source, Misconfigured for an unreadable file.
        """
        if self.kind == "postgres":
            raise InvariantBroken("a PostgreSQL source has no MySQL address")
        parts = urlsplit(self.url.get_secret_value())
        query = _mysql_query(parts.query)
        password = self._password()
        authority = query.get("ssl-ca")
        return MysqlAddress(
            host=unquote(parts.hostname or ""),
            port=parts.port or _MYSQL_PORT,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or "") if password is None else password,
            ssl_mode=_ssl_mode(query.get("ssl-mode", "VERIFY_IDENTITY")),
            ssl_ca=None if authority is None else Path(authority),
        )

    def dsn(self) -> str:
        """The url with the password from the url, the setting or the file put in.

        Raises Misconfigured for an unreadable file.
        """
        return with_password(self.url.get_secret_value(), self._password())

    def secrets(self) -> list[str]:
        """What must not be shown, as far as it is known here: the file may be another container's,
        and who has no need of the password is none the worse for that. Raises nothing."""
        return hidden(self.url.get_secret_value(), *known(self.dsn))

    def _password(self) -> str | None:
        return secret_of(self.password, self.password_file, key="source.password")


def _check_postgres(url: str) -> None:
    parts = urlsplit(url)
    if not parts.hostname or not parts.path.strip("/"):
        raise ValueError("must name a host and a database: postgresql://user@host:port/database")


def _check_mysql(url: str) -> None:
    parts = urlsplit(url)
    if not parts.hostname or not parts.username:
        raise ValueError(f"must name a host and a user: {parts.scheme}://user@host:port/")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("must have a port from 1 to 65535, or none")
    query = _mysql_query(parts.query)
    mode = _ssl_mode(query.get("ssl-mode", "VERIFY_IDENTITY"))
    if "ssl-ca" in query and mode in ("DISABLED", "REQUIRED"):
        raise ValueError(f"has an ssl-ca, which ssl-mode={mode} does not look at")
    if query.get("ssl-ca") == "":
        raise ValueError("must have a file's path in ssl-ca")


def _mysql_query(text: str) -> dict[str, str]:
    found = parse_qsl(text, keep_blank_values=True)
    query = dict(found)
    if set(query) - set(_MYSQL_QUERY):
        raise ValueError(f"may have {' and '.join(_MYSQL_QUERY)} behind the ?, and nothing else")
    if len(query) < len(found):
        raise ValueError("has a key twice behind the ?")
    return query


def _ssl_mode(text: str) -> SslMode:
    for mode in get_args(SslMode):
        if text.upper() == mode:
            found: SslMode = mode
            return found
    raise ValueError(f"must have an ssl-mode of {', '.join(get_args(SslMode))}")


def _only_of(
    kinds: tuple[SourceKind, ...], names: str, value: object, info: ValidationInfo
) -> object:
    url = info.data.get("url")  # missing when it is a mistake itself
    if url is not None and _KINDS[urlsplit(url.get_secret_value()).scheme] not in kinds:
        raise ValueError(f"belongs to {names} only")
    return value
