"""The project of a warehouse's BigQuery tables, and how its jobs are run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from tideline.contract.errors import Misconfigured
from tideline.settings.addresses import check_host, split_url
from tideline.settings.base import Effect, Section

_KEY = "warehouse.bigquery"
_LABEL = r"^[a-z0-9_-]{0,63}$"
_BUCKET = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[A-Za-z0-9._=/-]*)?")
_MINIMUM_BYTES = 10 * 1024 * 1024


class BigQuerySettings(Section):
    """The project of BigQuery tables, for tables of that format."""

    effect = Effect.COMMAND

    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$")] | None = None
    """The project that has the datasets and runs the jobs. None: there are no BigQuery tables
    ([BIGQUERY](BIGQUERY.md))."""
    location: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "US"
    """The location of datasets and jobs: `US`, `EU`, `europe-west3`."""
    dataset_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]*$", max_length=64)] = ""
    """Stands before the datasets, which have the names of the source's schemas: `erp` makes
    `erp__shop` of `shop`."""
    credentials_file: Path | None = None
    """A service account's key, or the configuration of a workload identity. None: the application
    default credentials of where the program runs."""
    maximum_bytes_billed: Annotated[int, Field(ge=_MINIMUM_BYTES)] | None = None
    """A job that would be billed for more bytes is refused, and its table stays as it was."""
    labels: Annotated[dict[str, Annotated[str, Field(pattern=_LABEL)]], Field(max_length=60)] = (
        Field(default_factory=dict)
    )
    """Labels of every job and table, besides `tideline`."""
    staging: str | None = None
    """A folder in Google's object storage, `gs://bucket/folder`: Spark's executors put rows there
    as files, which BigQuery loads. None: the driver uploads them."""
    endpoint: str | None = None
    """Another address of BigQuery's API: of a private endpoint, or of an emulator on this machine
    (`http://`, reached without credentials)."""

    write_endpoint: str | None = None
    """Another address of the Storage Write API, which streamed tables are written through; likewise
    with `http://`."""

    @field_validator("staging")
    @classmethod
    def _known_folder(cls, staging: str | None) -> str | None:
        if staging is not None and not _BUCKET.fullmatch(staging):
            raise ValueError("must be gs://bucket/folder")
        return None if staging is None else staging.rstrip("/")

    @field_validator("endpoint", "write_endpoint")
    @classmethod
    def _known_address(cls, endpoint: str | None) -> str | None:
        if endpoint is None:
            return None
        parts = split_url(endpoint)
        if "@" in parts.netloc or parts.query or parts.scheme not in ("https", "http"):
            raise ValueError("must be https://host, without credentials")
        check_host(parts)
        return endpoint.rstrip("/")

    def need_project(self) -> str:
        """Return the project. Raises Misconfigured where none is named."""
        if self.project is None:
            raise Misconfigured(
                "tables are to be in BigQuery, and no project is named for them",
                hint=f"set {_KEY}.project and {_KEY}.location (docs/BIGQUERY.md)",
            )
        return self.project
