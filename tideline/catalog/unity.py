"""Unity Catalog's open server, by its REST API: entries of external Delta tables."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException
from itertools import groupby
from typing import Any
from urllib.parse import quote, urlencode

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
_SINGLE_MAX = 10
"""So many names of a schema are asked for one by one; of more, all of its entries are listed."""
_PAGE = 50
"""Entries of a page, as many as any server gives."""
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
        """See `Catalog`. One that a list has left out is found when it cannot be made."""
        found = {}
        for schema, group in groupby(sorted(names), key=lambda name: name.schema):
            wanted = {name.table: name for name in group}
            tables = (
                ((table, self._ask("GET", self._path(name))) for table, name in wanted.items())
                if len(wanted) <= _SINGLE_MAX
                else self._listed(schema)
            )
            for table, answer in tables:
                if answer is not None and table in wanted:
                    found[wanted[table]] = entry_of(
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
        """See `Catalog`. The API changes no columns: the entry is removed and made again, with the
        grants that it had. The next merge makes it where this one is killed in between; its grants
        are lost then."""
        grants = self._grants(name)
        self.drop(name)
        if not self.create(name, table):
            return
        path = self._permissions(name)
        lost = [
            str(one["principal"])
            for one in grants
            if self._ask("PATCH", path, {"changes": [one]}) is None
        ]
        if lost:
            raise Misconfigured(
                f"its entry was made again, without the grants to {', '.join(lost)}, which the"
                " server does not know",
                hint="grant on the schema, or on the table again (docs/CATALOG.md#unity-catalog)",
            )

    def drop(self, name: CatalogName) -> None:
        """See `Catalog`."""
        self._ask("DELETE", self._path(name))

    def close(self) -> None:
        """See `Catalog`: each request has a connection of its own."""

    def _path(self, name: CatalogName) -> str:
        return f"/tables/{self._full(name)}"

    def _permissions(self, name: CatalogName) -> str:
        return f"/permissions/table/{self._full(name)}"

    def _full(self, name: CatalogName) -> str:
        return quote(f"{self._name}.{name}", safe="")

    def _listed(self, schema: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the entries of a schema by name."""
        words = {"catalog_name": self._name, "schema_name": schema, "max_results": _PAGE}
        tokens: list[str] = []
        while True:
            token = {"page_token": tokens[-1]} if tokens else {}
            answer = self._ask("GET", f"/tables?{urlencode({**words, **token})}") or {}
            yield from ((str(one.get("name")), one) for one in answer.get("tables") or ())
            more = str(answer.get("next_page_token") or "")
            if not more or more in tokens:
                return
            tokens.append(more)

    def _grants(self, name: CatalogName) -> list[Mapping[str, Any]]:
        """Return the changes that give a new entry what is granted on the present one itself."""
        answer = self._ask("GET", self._permissions(name)) or {}
        return [
            {"principal": one["principal"], "add": one["privileges"], "remove": []}
            for one in answer.get("privilege_assignments") or ()
            # Databricks has no name for a principal that is gone.
            if one.get("principal") and one.get("privileges")
        ]

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
            status, raw = self._send(request)
        except (OSError, HTTPException) as error:
            raise Unavailable(
                f"the Unity Catalog at {self._url} does not answer: {type(error).__name__}",
                hint="check that it runs, the key url of warehouse.catalog, and its certificate",
            ) from None
        answer = _decoded(raw)
        return answer if status is None else self._refused(status, answer)

    def _send(self, request: urllib.request.Request) -> tuple[int | None, bytes]:
        """Return the answer, with its status where that is an error."""
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return None, answer.read(_ANSWER_MAX)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(_ANSWER_MAX)

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
