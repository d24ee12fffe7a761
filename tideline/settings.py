"""``tideline.toml`` plus the environment, parsed once, into frozen settings.

Every key can come from the environment (``TIDELINE_SOURCE__URL``), which wins over the file. A
bad file raises one Misconfigured that names every mistake, each with its key and what is allowed.
Secrets are hidden from ``repr`` and from errors.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from tideline.contract.errors import InvariantBroken, Misconfigured

CONFIG_VARIABLE = "TIDELINE_CONFIG"
DEFAULT_CONFIG = "tideline.toml"

MiB = 1024 * 1024
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Days = Annotated[float, Field(ge=1 / 24, le=36_500)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


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

    url: SecretStr
    """``postgresql://user@host:port/database``, or ``mysql://user@host:port/`` and ``mariadb://…``
    with ``?ssl-mode=…&ssl-ca=…``. A database in the latter two is not looked at: ``tables`` names
    them, and the log covers all."""
    password: SecretStr | None = None
    password_file: Path | None = None
    tables: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()
    initial: Literal["dump", "log-only"] = "dump"
    schema_policy: Literal["auto", "ask"] = "auto"
    """Whether a table found unproven is dumped at once, or only marked."""
    connect_timeout_s: Seconds = 10.0
    slot: str | None = None
    """PostgreSQL: the replication slot's name; None: made from the pipeline's name."""
    publication: str | None = None
    """PostgreSQL: the publication's name; None: made from the pipeline's name."""
    read_only: bool = False
    """MySQL, MariaDB: write no watermarks; a chunk's place in the log is told by the server's own
    position. For a source where the user may not write."""
    watermark_database: Annotated[str, Field(pattern=r"^[0-9A-Za-z_$]{1,64}$")] = "tideline"
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
        """The url with the password from the url, the setting or the file put in."""
        url = self.url.get_secret_value()
        password = self._password()
        if password is None:
            return url
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        user = quote(unquote(parts.username or ""), safe="")
        return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()

    def _password(self) -> str | None:
        if self.password is not None:
            return self.password.get_secret_value()
        if self.password_file is not None:
            try:
                return self.password_file.read_text().strip()
            except OSError as error:
                raise Misconfigured(
                    f"source.password_file cannot be read: {error.strerror}",
                    hint="make the file readable for this user, or set TIDELINE_SOURCE__PASSWORD",
                ) from None
        return None


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


class Store(Section):
    """Where segments lie. Credentials for s3 come from the usual AWS variables, or from here."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    timeout_s: Seconds = 30.0
    """For one request; a contended create-only PUT can take 5 s on some stores."""
    retry_s: Seconds = 60.0
    """How long an unanswered request is repeated before it counts as Unavailable."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        parts = urlsplit(url)
        directory = url.startswith("file:///") and parts.path.strip("/")
        bucket = parts.scheme == "s3" and parts.netloc
        if not directory and not bucket and parts.scheme != "memory":
            raise ValueError("must be file:///absolute/path or s3://bucket/prefix")
        if "@" in parts.netloc:
            raise ValueError("must not hold credentials: they go into access_key_id and so on")
        return url.rstrip("/")

    @field_validator("endpoint")
    @classmethod
    def _known_endpoint(cls, endpoint: str | None) -> str | None:
        parts = urlsplit(endpoint or "https://unset")
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("must be https://host:port, or http:// of a trusted network")
        return endpoint

    @model_validator(mode="after")
    def _whole_credentials(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key belong together")
        return self


class Control(Section):
    """The Redis (or Valkey) that requests come through."""

    url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    message_bytes_max: Count = 1 * MiB
    answer_ttl_s: Seconds = 86_400.0


class Warehouse(Section):
    """Where the tables are kept, at ``{url}/{source schema}/{table}``."""

    url: str

    @field_validator("url")
    @classmethod
    def _no_trailing_slash(cls, url: str) -> str:
        if not urlsplit(url).scheme:
            raise ValueError("must be a url such as file:///absolute/path")
        return url.rstrip("/")


class Capture(Section):
    """The worker's limits, each with its unit in its name."""

    flush_interval_s: Seconds = 5.0
    segment_bytes_max: Count = 32 * MiB
    batch_rows_max: Count = 20_000
    batch_bytes_max: Count = 8 * MiB
    upload_bytes_max: Count = 256 * MiB
    """Sealed but not yet durable bytes; above it, reading stops and the source keeps its log."""
    stop_timeout_s: Seconds = 30.0
    """How long a stop waits for the store; what is not durable by then is read again."""
    heartbeat_s: Seconds = 5.0
    takeover_after_s: Seconds = 15.0
    chunk_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    chunk_bytes_max: Count = 64 * MiB
    delay_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 0
    chunk_redo_max: Count = 5
    """Redoes of one chunk by the snapshot rule before the fence is used."""
    fence_timeout_s: Seconds = 600.0
    lock_timeout_s: Seconds = 5.0
    mark_timeout_s: Seconds = 60.0
    """Without a word from the log for so long, though marks are written to it all the time, the
    connection counts as dead."""
    catalog_interval_s: Seconds = 3.0
    snapshot_interval_s: Seconds = 1.0
    load_interval_s: Seconds = 5.0
    """Between two looks at how busy the source is."""
    chunk_target_ms: Annotated[int, Field(ge=0, le=60_000)] = 2_000
    """Chunks get smaller while they take longer, and grow again up to ``chunk_rows``; 0: never."""
    replica_lag_max_s: Seconds | None = None
    """Dumps wait while a replica (or the source, where it is one) is further behind."""
    running_queries_max: Count | None = None
    """Dumps wait while more sessions are at work in the source."""
    log_backlog_max_bytes: Count | None = None
    """Dumps wait while the source keeps more of its log for us."""
    unseen_transactions_max: Count = 100_000
    open_requests_max: Annotated[int, Field(ge=1, le=64)] = 64
    parallel_dumps_max: Annotated[int, Field(ge=1, le=16)] = 2
    """Tables that are dumped side by side, each over two connections of its own."""
    chunks_ahead_max: Annotated[int, Field(ge=0, le=16)] = 2
    """Chunks of a table that are read while the one before them waits for its high mark."""
    request_claim_s: Seconds = 30.0
    rollup_part_bytes_max: Annotated[int, Field(ge=1, le=1024 * MiB)] = 32 * MiB
    """Smaller parts of a table are rolled up together, a thousand manifests' at a time."""
    rollup_file_bytes_max: Annotated[int, Field(ge=1, le=1024 * MiB)] = 64 * MiB
    """Parts that together are larger become several roll-ups."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Where Prometheus metrics are served, on 127.0.0.1; 0: nowhere."""

    @model_validator(mode="after")
    def _takes_over_after_heartbeats(self) -> Self:
        if self.takeover_after_s < 2 * self.heartbeat_s:
            raise ValueError("takeover_after_s must be at least twice heartbeat_s")
        return self


class Retention(Section):
    """When parts that nobody needs any more are removed from the store, by the active worker.

    Nothing is removed that a known warehouse has not applied, or that a table built anew from its
    latest finished full dump would need. Manifests, blocks and schemas are kept for ever.
    """

    remove: bool = True
    """False: nothing is ever removed, unless ``tideline garbage`` is run."""
    parts_days: Days = 7.0
    orphans_days: Days = 1.0
    """Of parts that no manifest names: how long an upload may still be under way, at the least."""
    plans_days: Days = 7.0
    """How long the parts of a plan are kept that was made and never ended well."""
    interval_s: Seconds = 21_600.0
    """Between two looks for what may go; the first comes soon after the worker became active."""


class Merge(Section):
    """Limits of one plan, and the Spark application that ``tideline merge`` starts."""

    parts_max: Count = 10_000
    bytes_max: Annotated[int, Field(ge=1)] = 8 * 1024 * MiB
    retries_max: Count = 8
    master: str = "local[2]"
    driver_memory: str = "2g"
    jars: str | None = None
    """Delta's jars, comma-separated; None: the ones in the cache."""


class Settings(BaseSettings):
    """All settings of one pipeline."""

    model_config = SettingsConfigDict(
        env_prefix="TIDELINE_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    pipeline: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
    source: Source
    store: Store
    control: Control = Control()
    warehouse: Warehouse
    capture: Capture = Capture()
    merge: Merge = Merge()
    retention: Retention = Retention()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over what the file gave (which arrives as init arguments)."""
        return env_settings, init_settings


def settings_path(config: str | Path | None = None) -> Path:
    """``config``, else ``$TIDELINE_CONFIG``, else ``./tideline.toml``."""
    return Path(config or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)


def load_settings(config: str | Path | None = None) -> Settings:
    """The settings from the file at `settings_path`.

    Raises Misconfigured with one line per mistake.
    """
    path = settings_path(config)
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise Misconfigured(
            f"no settings file at {path}", hint=f"name one with --config or {CONFIG_VARIABLE}"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(
            f"{path} cannot be read: {error}", hint="it is TOML: texts stand in quotes"
        ) from None
    return make_settings(values, origin=str(path))


def make_settings(values: Mapping[str, Any], *, origin: str = "settings") -> Settings:
    """Settings from parsed values and the environment; Misconfigured names every mistake."""
    try:
        return Settings(**values)
    except SettingsError as error:
        # The library names the field and keeps the value to itself.
        raise Misconfigured(
            f"a setting from the environment cannot be read: {error}",
            hint="""lists are JSON there, as in TIDELINE_SOURCE__TABLES='["public.*"]';"""
            " a section has no value of its own, its keys follow after two underscores",
        ) from None
    except ValidationError as error:
        lines = [f"{_key(item['loc'])}: {_reason(item)}" for item in error.errors()]
        raise Misconfigured(
            f"{origin} has {len(lines)} mistakes:\n  " + "\n  ".join(lines)
        ) from None


def _key(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)


def _reason(item: Any) -> str:
    if item["type"] == "extra_forbidden":
        return "no such key"
    if item["type"] == "missing":
        return "must be given"
    return str(item["msg"]).removeprefix("Value error, ")
