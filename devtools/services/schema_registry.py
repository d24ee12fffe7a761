"""A stand-in of a schema registry: Confluent's REST protocol for registering and looking up Avro
schemas, with its checks of compatibility, and faults that a test decides.

What it takes is checked as the real one does it: content types, credentials, that a schema is valid
Avro, and that a new version of a subject can read what the one before has written (BACKWARD, the
real one's default) and the other way round (FORWARD), or both (FULL).
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import fastavro

from devtools.services.http_service import HttpService, QuietHandler

_TYPES = ("application/vnd.schemaregistry.v1+json", "application/json")
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""By what was written, what else it can be read as."""
Answer = tuple[int, Mapping[str, Any]]


def no_fault(number: int, path: str) -> int:
    return 0


class SchemaRegistryServer(HttpService):
    """The registry. ``fault`` is asked before each request with its number from 1 on and its path:
    it returns the status to answer with, 0 for none, -1 to close the connection. ``requests`` are
    the paths that were asked for, in order. What was registered stays while it is stopped."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(_Handler, context=context)
        self.compatibility = "BACKWARD"
        self.login: tuple[str, str] | None = None
        self.fault: Callable[[int, str], int] = no_fault
        self.requests: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.schemas: dict[int, Any] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The url, as settings have it."""
        return self.endpoint

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Return status and document for a POST; status -1 is no answer."""
        with self._lock:
            self.requests.append(path)
            status = self.fault(len(self.requests), path)
            if status:
                return status, {"error_code": status, "message": "a fault of the test"}
            return self._answer(path, headers, body)

    def _answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if self.login is not None and headers.get("authorization") != _basic(*self.login):
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if headers.get("content-type") not in _TYPES:
            return 415, {"error_code": 415, "message": "Unsupported Media Type"}
        _, top, subject, *rest = map(unquote, path.split("/"))
        if top != "subjects" or rest not in ([], ["versions"]):
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        try:
            asked = json.loads(body)
            schema = json.loads(asked["schema"])
            fastavro.parse_schema(schema, {})
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException):
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        if asked.get("schemaType", "AVRO") != "AVRO":
            return 422, {"error_code": 42201, "message": "Invalid schema type"}
        return self._register(subject, schema) if rest else self._found(subject, schema)

    def _found(self, subject: str, schema: Any) -> Answer:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for version, number in enumerate(self.subjects[subject], 1):
            if self.schemas[number] == schema:
                known = {"subject": subject, "version": version, "id": number}
                return 200, {**known, "schema": json.dumps(schema)}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _register(self, subject: str, schema: Any) -> Answer:
        versions = self.subjects.get(subject, [])
        for number in versions:
            if self.schemas[number] == schema:
                return 200, {"id": number}
        if versions and not self._is_compatible(self.schemas[versions[-1]], schema):
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        known = [number for number, one in self.schemas.items() if one == schema]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = schema
        self.subjects[subject] = [*versions, number]
        return 200, {"id": number}

    def _is_compatible(self, before: Any, after: Any) -> bool:
        backward = can_read(after, before, {}, {})
        forward = can_read(before, after, {}, {})
        wanted = {"NONE": True, "BACKWARD": backward, "FORWARD": forward}
        return wanted.get(self.compatibility, backward and forward)


def can_read(reader: Any, writer: Any, readers: dict[str, Any], writers: dict[str, Any]) -> bool:
    """Return whether ``reader`` reads what ``writer`` has written, by Avro's rules of resolution.
    The last two are the named types that were met."""
    reader, writer = _resolved(reader, readers), _resolved(writer, writers)
    if isinstance(writer, list):
        return all(can_read(reader, one, readers, writers) for one in writer)
    if isinstance(reader, list):
        return any(can_read(one, writer, readers, writers) for one in reader)
    kinds = _kind(reader), _kind(writer)
    if kinds[0] != kinds[1]:
        return kinds[0] in _PROMOTIONS.get(kinds[1], set())
    if kinds[0] == "record":
        return _reads_record(reader, writer, readers, writers)
    if kinds[0] in ("array", "map"):
        inner = "items" if kinds[0] == "array" else "values"
        return can_read(reader[inner], writer[inner], readers, writers)
    return _digits(reader) == _digits(writer)


def _reads_record(
    reader: Any, writer: Any, readers: dict[str, Any], writers: dict[str, Any]
) -> bool:
    if reader["name"] != writer["name"]:
        return False
    readers[reader["name"]], writers[writer["name"]] = reader, writer
    written = {one["name"]: one["type"] for one in writer["fields"]}
    return all(
        can_read(one["type"], written[one["name"]], readers, writers)
        if one["name"] in written
        else "default" in one
        for one in reader["fields"]
    )


def _resolved(schema: Any, known: Mapping[str, Any]) -> Any:
    return known.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Any) -> str:
    found: str = schema["type"] if isinstance(schema, dict) else schema
    return found


def _digits(schema: Any) -> tuple[object, object]:
    if not isinstance(schema, dict) or schema.get("logicalType") != "decimal":
        return None, None
    return schema["precision"], schema["scale"]


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class _Handler(QuietHandler):
    def do_POST(self) -> None:
        registry: SchemaRegistryServer = self.server.service
        headers, body = self.received_headers(), self.received_body()
        status, document = registry.answer(self.path, headers, body)
        self.respond(max(status, 0), json.dumps(document).encode(), {"Content-Type": _TYPES[0]})
