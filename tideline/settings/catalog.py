"""The catalog in which the warehouse's tables are registered, under names that SQL knows."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tideline.contract.errors import Misconfigured
from tideline.settings.addresses import check_host, split_url
from tideline.settings.base import Effect, Seconds, Section
from tideline.settings.certificates import read_certificates
from tideline.settings.secrets import known, secret_of

CatalogKind = Literal["hive", "unity", "glue"]

_KEY = "warehouse.catalog"
_URLS = {
    "hive": (("thrift",), "thrift://host:9083"),
    "unity": (("https", "http"), "https://host"),
    "glue": (("https", "http"), "https://host, or nothing for Amazon's own"),
}
"""The schemes of each kind's url, and how it is written."""
_OWN = {
    "token": ("unity",),
    "token_file": ("unity",),
    "ca_file": ("unity", "glue"),
    "name": ("unity", "glue"),
    "region": ("glue",),
}
"""The keys that not every kind has."""
_FIELDS = {"pipeline", "schema", "table"}


class CatalogSettings(Section):
    """The catalog of the warehouse's tables."""

    effect = Effect.COMMAND

    kind: CatalogKind | None = None
    """`hive` (a Hive metastore), `unity` or `glue`: each table is registered there after its first
    merge ([CATALOG](CATALOG.md)). None: tables have no names but their addresses."""
    url: str | None = None
    """Its address: `thrift://host:9083` of a Hive metastore, `https://host` of a Unity Catalog;
    AWS Glue's is Amazon's own where none is given."""
    name: str | None = None
    """Unity: the catalog in which the schemas are, which must exist. Glue: the id of the AWS
    account, if it is not the caller's."""
    schema_name: str = "{schema}"
    """The schema (or database) of a table in the catalog; `{pipeline}`, `{schema}` and `{table}`
    stand for the names at the source. It is made if it is not there."""
    table_name: str = "{table}"
    """The name of a table there, likewise: `erp_{table}` keeps pipelines in one schema apart. A
    table that this cannot name has `catalog_name` in its own section."""
    token: SecretStr | None = None
    """Unity: the token; better in TIDELINE_WAREHOUSE__CATALOG__TOKEN."""
    token_file: Path | None = None
    """Unity: a file that holds the token and nothing else."""
    region: str | None = None
    """Glue: the region; None: the warehouse's. Credentials are those that the warehouse has."""
    ca_file: Path | None = None
    """A file with the certificates (PEM) of the authority of a url with a private one, for Unity
    and Glue."""
    timeout_s: Seconds = 10.0
    """The time limit of one request; a catalog that does not answer keeps no merge up for longer
    than a few of them."""

    @field_validator("schema_name", "table_name")
    @classmethod
    def _known_fields(cls, template: str) -> str:
        try:
            parts = list(string.Formatter().parse(template))
        except ValueError:
            raise ValueError("has a brace that stands alone: {{ and }} are braces") from None
        plain = all(not spec and conversion is None for _, _, spec, conversion in parts)
        fields = {field for _, field, _, _ in parts if field is not None}
        if not plain or not fields <= _FIELDS:
            raise ValueError("may hold {pipeline}, {schema} and {table}, and no other braces")
        return template

    @field_validator("table_name")
    @classmethod
    def _tells_tables_apart(cls, template: str) -> str:
        if "{table}" not in template:
            raise ValueError("must hold {table}: all tables would have one name")
        return template

    @field_validator("url")
    @classmethod
    def _no_secret(cls, url: str | None) -> str | None:
        parts = split_url(url or "https://unset")
        if "@" in parts.netloc or parts.query:
            raise ValueError("must not hold credentials: a token goes into token or token_file")
        check_host(parts)
        return url.rstrip("/") if url else None

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.kind is None:
            if self.model_fields_set - {"kind"}:
                raise ValueError("has keys and no kind: hive, unity or glue")
            return self
        for key, kinds in _OWN.items():
            if getattr(self, key) is not None and self.kind not in kinds:
                raise ValueError(f"{key} belongs to {' and '.join(kinds)} only")
        schemes, form = _URLS[self.kind]
        if self.url is None and self.kind != "glue":
            raise ValueError(f"url must be given: {form}")
        if self.url is not None and not self._has(schemes):
            raise ValueError(f"url must be {form}")
        if self.kind == "unity" and not self.name:
            raise ValueError("name must be given: the catalog in which the schemas are")
        return self

    def _has(self, schemes: tuple[str, ...]) -> bool:
        parts = split_url(self.url or "")
        return parts.scheme in schemes and bool(parts.hostname)

    def secret(self) -> str | None:
        """Return the token, from the setting or the file; None without either.

        Raises Misconfigured for an unreadable file.
        """
        return secret_of(self.token, self.token_file, key=f"{_KEY}.token")

    def authorities(self) -> str | None:
        """Return the certificates in ``ca_file``; None without one.

        Raises Misconfigured where there is none to read.
        """
        if self.ca_file is None:
            return None
        key = f"{_KEY}.ca_file"
        try:
            return read_certificates(self.ca_file, key).decode("ascii")
        except UnicodeDecodeError:
            raise Misconfigured(
                f"{key} cannot be read: it is no text", hint="name a file that this user may read"
            ) from None

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here. Raises
        nothing."""
        return known(self.secret)


CatalogNameText = Annotated[str, Field(pattern=r"^[^.]+\.[^.]+$", max_length=512)]
"""A table's name in the catalog, as ``schema.table``."""
