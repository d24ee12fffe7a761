"""Unity Catalog's open server, by its REST API: entries of external Delta tables."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from tideline.catalog.base import CatalogEntry, CatalogTable, entry_of
from tideline.catalog.columns import sql_type
from tideline.catalog.names import CatalogName
from tideline.catalog.spark_table import field_json
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.settings import Settings
from tideline.warehouse.base import TableColumn

_API = "/api/2.1/unity-catalog"
_ANSWER_MAX = 64 * 1024 * 1024
_EXISTS = ("TABLE_ALREADY_EXISTS", "SCHEMA_ALREADY_EXISTS", "ALREADY_EXISTS")
_WORDS_MAX = 300
_TYPES = {
    "long": "LONG", "integer": "INT", "short": "SHORT", "byte": "BYTE", "string": "STRING",
    "boolean": "BOOLEAN", "float": "FLOAT", "double": "DOUBLE", "binary": "BINARY", "date": "DATE",
    "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ", "array": "ARRAY", "map": "MAP",
    "struct": "STRUCT",
}  # fmt: skip
"""The API's names of types, by Spark's JSON."""


class UnityCatalog:
    """See `Catalog`."""

    def __init__(self, settings: Settings) -> None:
        catalog = settings.warehouse.catalog
        self._url, self._name = catalog.url or "", catalog.name or ""
        self._timeout_s = catalog.timeout_s
        token = catalog.secret()
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        context = ssl.create_default_context()
        if (authorities := catalog.authorities()) is not None:
            context.load_verify_locations(cadata=authorities)
        # A server that sends us elsewhere would have the token sent there, too.
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _NoRedirects()
        )

    def check(self) -> str:
        """See `Catalog`."""
        if self._ask("GET", f"/catalogs/{quote(self._name, safe='')}") is None:
            raise Misconfigured(
                f"the Unity Catalog at {self._url} has no catalog {self._name}",
                hint="create it there, or correct the key name of warehouse.catalog",
            )
        return f"the Unity Catalog at {self._url} answers, and has the catalog {self._name}"

    def find(self, names: Iterable[CatalogName]) -> Mapping[CatalogName, CatalogEntry]:
        """See `Catalog`: a request for each name."""
        found = {}
        for name in names:
            answer = self._ask("GET", self._path(name))
            if answer is not None:
                found[name] = entry_of(
                    answer.get("storage_location"), answer.get("properties") or {}
                )
        return found

    def create(self, name: CatalogName, table: CatalogTable) -> bool:
        """See `Catalog`."""
        wanted = self._table(name, table)
        answer = self._ask("POST", "/tables", wanted)
        if answer is None:  # The schema is not there.
            schema = {"name": name.schema, "catalog_name": self._name}
            if self._ask("POST", "/schemas", schema) is None:
                self.check()
            answer = self._ask("POST", "/tables", wanted)
        return answer is not None and "error_code" not in answer

    def update(self, name: CatalogName, table: CatalogTable) -> None:
        """See `Catalog`. The API changes no table: its entry is removed and made again, which the
        next merge completes where this one is killed in between."""
        self.drop(name)
        self.create(name, table)

    def drop(self, name: CatalogName) -> None:
        """See `Catalog`."""
        self._ask("DELETE", self._path(name))

    def close(self) -> None:
        """See `Catalog`: each request has a connection of its own."""

    def _path(self, name: CatalogName) -> str:
        return f"/tables/{quote(f'{self._name}.{name}', safe='')}"

    def _table(self, name: CatalogName, table: CatalogTable) -> Mapping[str, Any]:
        return {
            "name": name.table,
            "catalog_name": self._name,
            "schema_name": name.schema,
            "table_type": "EXTERNAL",
            "data_source_format": table.format.upper(),
            "storage_location": table.location,
            "columns": [_column(at, one) for at, one in enumerate(table.columns)],
            "comment": table.comment,
            "properties": table.properties(),
        }

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """Return the answer; None for 404. An ``error_code`` in it says that the name is taken."""
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self._url}{_API}{path}", data=data, headers=headers, method=method
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return _decoded(answer.read(_ANSWER_MAX))
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error.code, _decoded(error.read(_ANSWER_MAX)))
        except (OSError, HTTPException) as error:
            raise Unavailable(
                f"the Unity Catalog at {self._url} does not answer: {type(error).__name__}",
                hint="check that it runs, the key url of warehouse.catalog, and its certificate",
            ) from None

    def _refused(self, status: int, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
        code = str(answer.get("error_code") or "")
        if status == 404:
            return None
        if status == 409 or code in _EXISTS:
            return {"error_code": code or _EXISTS[0]}
        if status >= 500 or status == 429:
            raise Unavailable(f"the Unity Catalog at {self._url} answered {status}")
        if status in (401, 403):
            raise Misconfigured(
                f"the Unity Catalog at {self._url} refuses the token: {status}",
                hint="set TIDELINE_WAREHOUSE__CATALOG__TOKEN; its user may use the catalog, and"
                " create schemas and external tables in it",
            )
        why = str(answer.get("message") or "")[:_WORDS_MAX]
        raise Misconfigured(f"the Unity Catalog at {self._url} answered {status} {code}: {why}")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the answer stays an error."""


def _column(position: int, column: TableColumn) -> Mapping[str, Any]:
    kind = column.type if isinstance(column.type, str) else str(column.type.get("type"))
    decimal = kind.startswith("decimal(")
    found: dict[str, Any] = {
        "name": column.name,
        "type_text": sql_type(column.type),
        "type_json": json.dumps(field_json(column)),
        "type_name": "DECIMAL" if decimal else _TYPES.get(kind, "USER_DEFINED_TYPE"),
        "position": position,
        "nullable": column.nullable,
    }
    if column.comment:
        found["comment"] = column.comment
    if decimal:
        precision, scale = kind.removeprefix("decimal(").rstrip(")").split(",")
        found |= {"type_precision": int(precision), "type_scale": int(scale)}
    return found


def _decoded(raw: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
