"""A stand-in for Unity Catalog's open server, whose jars could not be had: it refuses whatever its
OpenAPI description (`all.yaml` of 0.3, models of `unitycatalog-client` 0.7) does not allow.

Nothing here has been compared with the real server.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

_API = "/api/2.1/unity-catalog"
_TABLE = {
    "name", "catalog_name", "schema_name", "table_type", "data_source_format", "columns",
    "storage_location", "comment", "properties",
}  # fmt: skip
_COLUMN = {
    "name", "type_text", "type_json", "type_name", "type_precision", "type_scale",
    "type_interval_type", "position", "comment", "nullable", "partition_index",
}  # fmt: skip
_TYPES = {
    "BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ", "STRING", "BINARY", "DECIMAL", "INTERVAL", "ARRAY", "STRUCT", "MAP", "CHAR",
    "NULL", "USER_DEFINED_TYPE", "TABLE_TYPE",
}  # fmt: skip


class UnityServer:
    """One server with the catalog ``name``; ``token`` is asked for. A context manager."""

    def __init__(self, name: str = "main", token: str = "unity-canary") -> None:
        self.name, self.token = name, token
        self.schemas: dict[str, dict[str, Any]] = {}
        self.tables: dict[str, dict[str, Any]] = {}
        self.grants: dict[str, dict[str, list[str]]] = {}
        self.gone: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.redirects_to: str | None = None
        handler = type("Handler", (_Handler,), {"unity": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> UnityServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        self.asked.append((method, path))
        match method, path.split("/")[1:]:
            case "GET", ["catalogs", name]:
                return (200, {"name": name}) if name == self.name else _missing("CATALOG")
            case "POST", ["schemas"]:
                return self._make_schema(body)
            case "POST", ["tables"]:
                return self._make_table(body)
            case "GET", ["tables", name]:
                found = self.tables.get(unquote(name))
                return (200, found) if found else _missing("TABLE")
            case "GET", ["tables"]:
                return self._list(dict(parse_qsl(query)))
            case "DELETE", ["tables", name]:
                self.grants.pop(unquote(name), None)
                return (200, {}) if self.tables.pop(unquote(name), None) else _missing("TABLE")
            case "GET" | "PATCH", ["permissions", "table", name]:
                return self._permissions(unquote(name), body)
        return 404, {}

    def _list(self, words: dict[str, str]) -> tuple[int, Any]:
        """Pages of the most that was asked for, ten at most, by name; as the server does it, the
        last one has a token, too."""
        if words["catalog_name"] != self.name or words["schema_name"] not in self.schemas:
            return _missing("SCHEMA")
        prefix = f"{self.name}.{words['schema_name']}."
        names = sorted(name for name in self.tables if name.startswith(prefix))
        names = [name for name in names if name > words.get("page_token", "")]
        names = names[: min(10, int(words["max_results"]))]
        found = [self.tables[name] for name in names]
        return 200, {"tables": found, "next_page_token": names[-1] if names else ""}

    def _permissions(self, name: str, body: Any) -> tuple[int, Any]:
        if name not in self.tables:
            return _missing("TABLE")
        granted = self.grants.setdefault(name, {})
        changes = [] if body is None else body["changes"]
        if {one["principal"] for one in changes} & self.gone:
            return _missing("USER")
        for change in changes:
            granted.setdefault(change["principal"], []).extend(change["add"])
        found = [{"principal": who, "privileges": what} for who, what in granted.items()]
        return 200, {"privilege_assignments": found}

    def _make_schema(self, body: Any) -> tuple[int, Any]:
        if body.get("catalog_name") != self.name:
            return _missing("CATALOG")
        if body["name"] in self.schemas:
            return 409, {"error_code": "SCHEMA_ALREADY_EXISTS", "message": "there"}
        self.schemas[body["name"]] = body
        return 200, body

    def _make_table(self, body: Any) -> tuple[int, Any]:
        if (problem := _problem(body)) is not None:
            return 400, {"error_code": "INVALID_ARGUMENT", "message": problem}
        if body["catalog_name"] != self.name or body["schema_name"] not in self.schemas:
            return _missing("SCHEMA")
        full = f"{self.name}.{body['schema_name']}.{body['name']}"
        if full in self.tables:
            return 409, {"error_code": "TABLE_ALREADY_EXISTS", "message": "there"}
        self.tables[full] = body
        return 200, body


def _problem(body: dict[str, Any]) -> str | None:
    if stray := set(body) - _TABLE:
        return f"unknown {stray}"
    if body.get("table_type") != "EXTERNAL" or body.get("data_source_format") != "DELTA":
        return "not an external Delta table"
    if "://" not in body.get("storage_location", "") or " " in body["storage_location"]:
        return "no url"
    if any(not isinstance(value, str) for value in body["properties"].values()):
        return "properties are texts"
    for at, column in enumerate(body["columns"]):
        if set(column) - _COLUMN or column["type_name"] not in _TYPES or column["position"] != at:
            return f"column {column}"
        field = json.loads(column["type_json"])
        if (field["name"], field["nullable"]) != (column["name"], column["nullable"]):
            return f"type_json of {column}"
        if (column["type_name"] == "DECIMAL") != ("type_precision" in column):
            return f"precision of {column}"
    return None


def _missing(what: str) -> tuple[int, Any]:
    return 404, {"error_code": f"{what}_NOT_FOUND", "message": "not there"}


class _Handler(BaseHTTPRequestHandler):
    unity: UnityServer

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, answer = 401, {"error_code": "UNAUTHENTICATED", "message": "no"}
        if self.headers.get("Authorization") == f"Bearer {self.unity.token}":
            body = json.loads(raw) if raw else None
            assert self.path.startswith(_API)
            status, answer = self.unity.answer(self.command, self.path.removeprefix(_API), body)
        if self.unity.redirects_to is not None:
            status, answer = 302, {}
        text = json.dumps(answer).encode()
        self.send_response(status)
        if self.unity.redirects_to is not None:
            self.send_header("Location", f"{self.unity.redirects_to}{self.path}")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
