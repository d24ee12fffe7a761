"""The catalog of a warehouse's Iceberg tables, and how these are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import unquote

from pydantic import Field, SecretStr, field_validator, model_validator

from tideline.contract.errors import Misconfigured
from tideline.settings.addresses import check_host, split_url
from tideline.settings.base import Effect, Section
from tideline.settings.secrets import known, secret_of

IcebergCatalogKind = Literal["jdbc", "rest", "glue", "hive"]

_KEY = "warehouse.iceberg"
_URLS = {
    "jdbc": (("sqlite", "postgresql"), "postgresql://host:5432/database, or sqlite:///path"),
    "rest": (("https", "http"), "https://host"),
    "hive": (("thrift",), "thrift://host:9083"),
    "glue": (("https", "http"), "https://host, or nothing for Amazon's own"),
}


class IcebergSettings(Section):
    """The catalog of Iceberg tables, for tables of that format."""

    effect = Effect.COMMAND

    catalog: IcebergCatalogKind | None = None
    """`jdbc` (a database), `rest`, or, not run: `glue` and `hive`. None: there are no Iceberg
    tables ([ICEBERG](ICEBERG.md))."""
    url: str | None = None
    """The catalog's address: `postgresql://host:5432/database` or, for one machine,
    `sqlite:////absolute/path.db`; `https://host` of a REST catalog; `thrift://host:9083`."""
    user: str | None = None
    """The user of the catalog's database."""
    password: SecretStr | None = None
    """That user's password, or the token of a REST catalog; better in
    TIDELINE_WAREHOUSE__ICEBERG__PASSWORD."""
    password_file: Path | None = None
    """A file that holds the password and nothing else."""
    warehouse: str | None = None
    """The catalog's own name of the place of tables; None: `warehouse.url`, which a REST catalog
    may not know."""
    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*$", max_length=64)] = ""
    """Stands before the namespaces, so that pipelines can share a catalog: `erp` makes
    `erp__shop.orders` of the source's `shop.orders`."""
    format_version: Literal[2, 3] = 3
    """The version of Iceberg's format that new tables have: 2 for readers that lack 3."""

    @field_validator("url")
    @classmethod
    def _no_secret(cls, url: str | None) -> str | None:
        parts = split_url(url or "https://unset")
        if "@" in parts.netloc or parts.query:
            raise ValueError("must not hold credentials: they go into user and password")
        check_host(parts)
        return url.rstrip("/") if url else None

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.catalog is None:
            if self.model_fields_set - {"catalog", "format_version", "namespace"}:
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
        return self

    @property
    def file(self) -> Path | None:
        """The file of a catalog in SQLite; None for any other."""
        parts = split_url(self.url or "")
        return Path(unquote(parts.path[1:])) if parts.scheme == "sqlite" else None

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
