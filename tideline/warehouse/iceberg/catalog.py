"""The settings by which Spark and pyiceberg reach the catalog of Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from tideline.contract.errors import Misconfigured
from tideline.contract.layout import ICEBERG_FOLDER
from tideline.settings import Warehouse
from tideline.settings.addresses import split_url
from tideline.settings.iceberg import IcebergSettings
from tideline.warehouse.access import access_keys
from tideline.warehouse.iceberg.names import (
    CATALOG_SETTING,
    MARKER_SETTING,
    VERSION_SETTING,
    VERSIONS_SETTING,
)

_BUSY_MS = "20000"
"""The time for which a catalog in SQLite waits while another process writes to it."""
_CLASS = "org.apache.iceberg.spark.SparkCatalog"
_HIDDEN = "spark.redaction.regex"
_HIDDEN_KEYS = "(?i)secret|password|token|access[.]?key|credential"
"""The settings whose values Spark keeps out of its pages and event logs: its own, and that of a
client of a REST catalog."""
_FILES = "org.apache.iceberg.hadoop.HadoopFileIO"


def _folder_of(place: Warehouse) -> str:
    """Return where the catalog puts the files of tables: in no folder that a Delta table has, whose
    files would be without an owner there, and go when those of the Iceberg table are cleaned."""
    return place.iceberg.warehouse or f"{place.url.rstrip('/')}/{ICEBERG_FOLDER}"


def iceberg_settings(place: Warehouse) -> dict[str, str]:
    """Return the settings of Spark for the Iceberg tables of ``place``; {} where it has none.

    Raises Misconfigured for a secret that cannot be read.
    """
    settings = place.iceberg
    if settings.catalog is None:
        return {}
    own = {
        "type": settings.catalog,
        "warehouse": _folder_of(place),
        # A session that has seen a table would go on seeing that version of it.
        "cache-enabled": "false",
        **_OF_KIND[settings.catalog](settings),
    }
    hidden = {_HIDDEN: _HIDDEN_KEYS} if "credential" in own else {}
    return {
        MARKER_SETTING: "true",
        **hidden,
        CATALOG_SETTING: _CLASS,
        **{f"{CATALOG_SETTING}.{name}": value for name, value in own.items()},
        VERSION_SETTING: str(settings.format_version),
        VERSIONS_SETTING: str(settings.versions_max),
    }


def _jdbc(settings: IcebergSettings) -> dict[str, str]:
    found = {"uri": f"jdbc:{settings.url}", "jdbc.schema-version": "V1"}
    if settings.file is not None:
        found = {**found, "uri": f"jdbc:sqlite:{settings.file}", "jdbc.busy_timeout": _BUSY_MS}
    secret = settings.secret()
    return (
        found
        | ({} if settings.user is None else {"jdbc.user": settings.user})
        | ({} if secret is None else {"jdbc.password": secret})
    )


def _rest(settings: IcebergSettings) -> dict[str, str]:
    # Files are reached as those of all tables are, not by the server's own choice.
    return {"uri": str(settings.url), "io-impl": _FILES, **_client(settings)}


def _client(settings: IcebergSettings) -> dict[str, str]:
    """Return how either client logs in at a REST catalog; {} without a secret.

    Raises Misconfigured for a client id without one.
    """
    secret = settings.secret()
    if settings.user is None:
        return {} if secret is None else {"token": secret}
    if secret is None:
        raise Misconfigured(
            "warehouse.iceberg.user is a client id at a REST catalog, and has no secret",
            hint="set TIDELINE_WAREHOUSE__ICEBERG__PASSWORD, or warehouse.iceberg.password_file",
        )
    return {
        "credential": f"{settings.user}:{secret}",
        "oauth2-server-uri": settings.token_url,
        "scope": settings.scope,
    }


def _hive(settings: IcebergSettings) -> dict[str, str]:
    return {"uri": str(settings.url)}


def _glue(settings: IcebergSettings) -> dict[str, str]:
    return {} if settings.url is None else {"glue.endpoint": settings.url}


_OF_KIND = {"jdbc": _jdbc, "rest": _rest, "hive": _hive, "glue": _glue}


def reader_properties(place: Warehouse) -> dict[str, str]:
    """Return the properties of pyiceberg's catalog for ``place``.

    Raises Misconfigured for a secret that cannot be read, or without a catalog.
    """
    settings = place.iceberg
    settings.need_catalog()
    found = {"warehouse": _folder_of(place), **_files(place)}
    if settings.catalog == "jdbc":
        # A database that was restarted has closed the connections that are kept.
        alive = {"pool_pre_ping": "true"}
        return {**found, **alive, "type": "sql", "uri": _alchemy(settings, settings.secret())}
    found |= {"type": str(settings.catalog)}
    if settings.url is not None:
        found |= {"glue.endpoint" if settings.catalog == "glue" else "uri": settings.url}
    return found | (_client(settings) if settings.catalog == "rest" else {})


def _alchemy(settings: IcebergSettings, secret: str | None) -> str:
    if settings.file is not None:
        return f"sqlite:///{settings.file}"
    parts = split_url(settings.url or "")
    user = "" if settings.user is None else quote(settings.user, safe="")
    word = "" if secret is None else f":{quote(secret, safe='')}"
    at = "@" if user or word else ""
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}+psycopg2://{user}{word}{at}{parts.netloc}{parts.path}{query}"


def _files(place: Warehouse) -> Mapping[str, str]:
    """Return how pyiceberg reaches the files of tables."""
    if not place.in_s3:
        return {}
    found = {"s3.force-virtual-addressing": str(not place.path_style).lower()}
    if (endpoint := place.endpoint) is not None:
        found["s3.endpoint"] = endpoint
    if place.region is not None:
        found["s3.region"] = place.region
    if (keys := access_keys(place)) is not None:
        found |= {
            "s3.access-key-id": keys.access_key_id,
            "s3.secret-access-key": keys.secret_access_key,
        }
        if keys.session_token is not None:
            found["s3.session-token"] = keys.session_token
    return found
