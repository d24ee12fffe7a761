"""The catalog of a warehouse's Iceberg tables, and how these are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import unquote

from pydantic import Field, SecretStr, field_validator, model_validator

from tideline.contract.errors import Misconfigured
from tideline.settings.addresses import check_host, is_loopback, query_of, split_url
from tideline.settings.base import Effect, Section
from tideline.settings.secrets import known, secret_of

IcebergCatalogKind = Literal["jdbc", "rest", "glue", "hive"]

_KEY = "warehouse.iceberg"
_TLS = ("sslmode", "sslrootcert")
"""What may stand behind the ``?`` of a PostgreSQL's url: both clients know these names."""
_OF_REST = ("oauth2_url", "scope")
_URLS = {
    "jdbc": (("sqlite", "postgresql"), "postgresql://host:5432/database, or sqlite:///path"),
    "rest": (("https", "http"), "https://host"),
    "hive": (("thrift",), "thrift://host:9083"),
    "glue": (("https", "http"), "https://host, or nothing for Amazon's own"),
}
CATALOG_URLS = "; ".join(form for _, form in _URLS.values())
"""How the urls of catalogs are written."""
_WITHOUT_CATALOG = {"catalog", "format_version", "namespace", "versions_max"}


def catalog_kind(url: str) -> str | None:
    """Return the kind of the catalog at ``url`` by its scheme; None for another scheme."""
    scheme = url.partition(":")[0]
    return next((kind for kind, (schemes, _) in _URLS.items() if scheme in schemes), None)


class IcebergSettings(Section):
    """The catalog of Iceberg tables, for tables of that format."""

    effect = Effect.COMMAND

    catalog: IcebergCatalogKind | None = None
    """`jdbc` (a database), `rest`, or, not run: `glue` and `hive`. None: there are no Iceberg
    tables ([ICEBERG](ICEBERG.md))."""
    url: str | None = None
    """The catalog's address: `postgresql://host:5432/database`, with `?sslmode=verify-full` and
    `&sslrootcert=/path` for TLS that is verified, or, for one machine,
    `sqlite:////absolute/path.db`; `https://host` of a REST catalog; `thrift://host:9083`."""
    user: str | None = None
    """The user of the catalog's database, or the client id at a REST catalog."""
    password: SecretStr | None = None
    """That user's password or that client's secret; without `user`, the token of a REST catalog.
    Better in TIDELINE_WAREHOUSE__ICEBERG__PASSWORD."""
    password_file: Path | None = None
    """A file that holds the password and nothing else."""
    warehouse: str | None = None
    """The catalog's own name of the place of tables; None: `~iceberg` in `warehouse.url`, which a
    REST catalog may not know."""
    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*$", max_length=64)] = ""
    """Stands before the namespaces, so that pipelines can share a catalog: `erp` makes
    `erp__shop.orders` of the source's `shop.orders`."""
    format_version: Literal[2, 3] = 3
    """The version of Iceberg's format that new tables have: 2 for readers that lack 3."""
    oauth2_url: str | None = None
    """The address that gives a REST catalog's clients a token for id and secret; None: the
    catalog's own, `{url}/v1/oauth/tokens`."""
    scope: str = "catalog"
    """The scope that such a token is asked for."""
    versions_max: Annotated[int, Field(ge=50, le=100_000)] = 500
    """A table keeps so many of its newest versions as snapshots, and of older ones the last of each
    hour, for ``maintain.vacuum_hours``: all of them are in what every commit writes and every
    reader reads ([ICEBERG](ICEBERG.md#versions))."""

    @field_validator("url", "oauth2_url")
    @classmethod
    def _no_secret(cls, url: str | None) -> str | None:
        parts = split_url(url or "https://unset")
        of_database = parts.scheme == "postgresql" and set(query_of(parts)) <= set(_TLS)
        if "@" in parts.netloc or not (of_database or not parts.query):
            raise ValueError("must not hold credentials: they go into user and password")
        check_host(parts)
        return url.rstrip("/") if url else None

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.catalog is None:
            if self.model_fields_set - _WITHOUT_CATALOG:
                raise ValueError(f"has keys and no catalog: {', '.join(_URLS)}")
            return self
        schemes, form = _URLS[self.catalog]
        parts = split_url(self.url or "")
        if self.url is None and self.catalog != "glue":
            raise ValueError(f"url must be given: {form}")
        in_file = not parts.netloc and parts.path.startswith("//")
        whole = in_file if parts.scheme == "sqlite" else parts.hostname
        if self.url is not None and not (parts.scheme in schemes and whole):
            raise ValueError(f"url must be {form}")
        self._check_client()
        return self

    def _check_client(self) -> None:
        """Raise ValueError for keys of a REST catalog's client that mean nothing here."""
        if self.catalog != "rest":
            if given := sorted(self.model_fields_set & set(_OF_REST)):
                raise ValueError(f"{' and '.join(given)} are for a REST catalog")
            return
        if split_url(self.oauth2_url or "https://unset").scheme not in ("https", "http"):
            raise ValueError("oauth2_url must be https://host/path")
        if ":" in (self.user or ""):
            raise ValueError("user must not hold a colon: clients split id and secret there")

    @property
    def token_url(self) -> str:
        """The address that gives clients of a REST catalog a token."""
        return self.oauth2_url or f"{self.url}/v1/oauth/tokens"

    @property
    def file(self) -> Path | None:
        """The file of a catalog in SQLite; None for any other."""
        parts = split_url(self.url or "")
        return Path(unquote(parts.path[1:])) if parts.scheme == "sqlite" else None

    @property
    def tls_is_verified(self) -> bool:
        """The certificate is verified, by what the catalog's address says, or no connection leaves
        this machine."""
        parts = split_url(self.url or "https://unset")
        if parts.scheme == "postgresql":
            verified = query_of(parts).get("sslmode") in ("verify-ca", "verify-full")
            return verified or is_loopback(parts.hostname or "")
        return parts.scheme != "http" or is_loopback(parts.hostname or "")

    def secret(self) -> str | None:
        """Return the password, from the setting or the file; None without either.

        Raises Misconfigured for an unreadable file.
        """
        return secret_of(self.password, self.password_file, key=f"{_KEY}.password")

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here. Raises
        nothing."""
        return known(self.secret)

    def need_catalog(self) -> None:
        """Raise Misconfigured where Iceberg tables are wanted and no catalog is named."""
        if self.catalog is None:
            raise Misconfigured(
                "tables are to be Iceberg tables, and no catalog is named for them",
                hint=f'set {_KEY}.catalog = "jdbc" and {_KEY}.url (docs/ICEBERG.md)',
            )
