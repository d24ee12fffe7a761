"""AWS Glue's Data Catalog. Its entries are those of a Hive metastore, with the columns besides:
Lake Formation, views and filters of Athena need them as the table's log has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tideline.aws_session import aws_session
from tideline.catalog import spark_table
from tideline.catalog.base import CatalogEntry, CatalogTable, entry_of
from tideline.catalog.columns import hive_type
from tideline.catalog.names import CatalogName
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.settings import Settings

_SINGLE_MAX = 10
"""So many names of a database are asked for one by one; of more, all of its entries are read."""
_COMMENT_MAX = 255
_DESCRIPTION_MAX = 2_048
"""Bytes, by "Table API" of Glue's developer guide: it refuses the whole entry for a longer one."""
_BREAKS = re.compile(r"\s*[\r\n]+\s*")
_REFUSED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Control characters that no text of Glue's has; one of a column has no line breaks either."""
_PASSING = ("ThrottlingException", "InternalServiceException", "OperationTimeoutException")
_WORDS_MAX = 300


class GlueCatalog:
    """See `Catalog`."""

    def __init__(self, settings: Settings) -> None:
        catalog, place = settings.warehouse.catalog, settings.warehouse_storage
        region = catalog.region or place.region
        self._where = f"AWS Glue in {region or 'the region of the environment'}"
        self._account = {} if catalog.name is None else {"CatalogId": catalog.name}
        keys = place.keys()
        access = {} if keys is None else {
            "aws_access_key_id": keys.access_key_id,
            "aws_secret_access_key": keys.secret_access_key,
            "aws_session_token": keys.session_token,
        }  # fmt: skip
        catalog.authorities()  # A file that cannot be read is a clear error.
        with self._asking():
            self._client: Any = aws_session(place.profile, region).create_client(
                "glue",
                region_name=region,
                endpoint_url=catalog.url,
                verify=None if catalog.ca_file is None else str(catalog.ca_file),
                config=Config(
                    connect_timeout=catalog.timeout_s,
                    read_timeout=catalog.timeout_s,
                    retries={"total_max_attempts": 3, "mode": "standard"},
                ),
                **access,
            )

    def check(self) -> str:
        """See `Catalog`."""
        with self._asking():
            self._client.get_databases(MaxResults=1, **self._account)
        return f"{self._where} answers"

    def find(self, names: Iterable[CatalogName]) -> Mapping[CatalogName, CatalogEntry]:
        """See `Catalog`."""
        found: dict[CatalogName, CatalogEntry] = {}
        for schema, group in groupby(sorted(names), key=lambda name: name.schema):
            wanted = {name.table for name in group}
            tables = self._each if len(wanted) <= _SINGLE_MAX else self._listed
            for one in tables(schema, wanted):
                if one["Name"] in wanted:
                    found[CatalogName(schema, one["Name"])] = _entry(one)
        return found

    def create(self, name: CatalogName, table: CatalogTable) -> bool:
        """See `Catalog`."""
        with self._asking():
            made = self._tried(
                lambda: self._client.create_table(
                    DatabaseName=name.schema, TableInput=_input(name, table), **self._account
                ),
                "AlreadyExistsException",
                missing=lambda: self._make_database(name.schema),
            )
        return made is not None

    def update(self, name: CatalogName, table: CatalogTable) -> None:
        """See `Catalog`. Properties that others have put into the entry stay. No earlier version is
        archived: the table's log has them, and Glue has a limit."""
        with self._asking():
            found = self._client.get_table(
                DatabaseName=name.schema, Name=name.table, **self._account
            )["Table"]
            wanted = _input(name, table)
            kept = spark_table.properties_of_others(found.get("Parameters") or {})
            wanted["Parameters"] = {**kept, **wanted["Parameters"]}
            self._client.update_table(
                DatabaseName=name.schema, TableInput=wanted, SkipArchive=True, **self._account
            )

    def drop(self, name: CatalogName) -> None:
        """See `Catalog`."""
        with self._asking():
            self._tried(
                lambda: self._client.delete_table(
                    DatabaseName=name.schema, Name=name.table, **self._account
                ),
                "EntityNotFoundException",
            )

    def close(self) -> None:
        """See `Catalog`."""
        with suppress(BotoCoreError):
            self._client.close()

    def _each(self, schema: str, tables: set[str]) -> Iterator[Mapping[str, Any]]:
        for table in sorted(tables):
            with self._asking():
                found = self._tried(
                    lambda table=table: self._client.get_table(  # type: ignore[misc]
                        DatabaseName=schema, Name=table, **self._account
                    ),
                    "EntityNotFoundException",
                )
            if found is not None:
                yield found["Table"]

    def _listed(self, schema: str, tables: set[str]) -> Iterator[Mapping[str, Any]]:
        pages = self._client.get_paginator("get_tables")
        with self._asking():
            found = self._tried(
                lambda: [
                    one
                    for page in pages.paginate(DatabaseName=schema, **self._account)
                    for one in page["TableList"]
                ],
                "EntityNotFoundException",
            )
        yield from found or ()

    def _make_database(self, name: str) -> None:
        wanted = {"Name": name}
        self._tried(
            lambda: self._client.create_database(DatabaseInput=wanted, **self._account),
            "AlreadyExistsException",
        )

    def _tried(
        self, ask: Callable[[], Any], code: str, missing: Callable[[], None] | None = None
    ) -> Any:
        """Return what ``ask`` returns; None where Glue answers ``code``. Where its database is not
        there, ``missing`` makes it, and it is asked again."""
        try:
            return ask()
        except ClientError as error:
            answered = error.response["Error"]["Code"]
            if answered == code:
                return None
            if missing is None or answered != "EntityNotFoundException":
                raise
            missing()
        return self._tried(ask, code)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn the client's errors into ours."""
        try:
            yield
        except ClientError as error:
            code = error.response["Error"]["Code"]
            why = str(error.response["Error"].get("Message", ""))[:_WORDS_MAX]
            if code in _PASSING:
                raise Unavailable(f"{self._where} does not answer: {code}") from None
            raise Misconfigured(
                f"{self._where} refuses: {code}: {why}",
                hint="docs/CATALOG.md#aws-glue lists what its policy has to allow",
            ) from None
        except BotoCoreError as error:
            raise Unavailable(
                f"{self._where} cannot be asked: {type(error).__name__}",
                hint="check the region, the credentials of the warehouse, and the network",
            ) from None


def _entry(found: Mapping[str, Any]) -> CatalogEntry:
    storage = found.get("StorageDescriptor") or {}
    serde = (storage.get("SerdeInfo") or {}).get("Parameters") or {}
    location = serde.get(spark_table.PATH) or storage.get("Location")
    return entry_of(location, found.get("Parameters") or {})


def _input(name: CatalogName, table: CatalogTable) -> dict[str, Any]:
    return {
        "Name": name.table,
        "Description": _text(table.comment, _DESCRIPTION_MAX),
        "Owner": "tideline",
        "TableType": spark_table.EXTERNAL,
        "PartitionKeys": [],
        "Parameters": {**spark_table.table_properties(table), "classification": table.format},
        "StorageDescriptor": {
            "Columns": [
                {
                    "Name": one.name,
                    "Type": hive_type(one.type),
                    "Comment": _text(_BREAKS.sub(" ", one.comment), _COMMENT_MAX),
                }
                for one in table.columns
            ],
            "Location": spark_table.path_of(table.location),
            "InputFormat": spark_table.INPUT_FORMAT,
            "OutputFormat": spark_table.OUTPUT_FORMAT,
            "SerdeInfo": {
                "SerializationLibrary": spark_table.SERDE,
                "Parameters": spark_table.serde_properties(table),
            },
        },
    }


def _text(text: str, bytes_max: int) -> str:
    """Return as much of the text as Glue permits."""
    return _REFUSED.sub(" ", text).encode()[:bytes_max].decode(errors="ignore")
