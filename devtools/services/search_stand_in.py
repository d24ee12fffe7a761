"""A search cluster as far as the bulk API's documentation has it: external versions, tombstones of
deletes, mappings that refuse, and requests that are refused for now as a test decides.

It is strict: a request that a cluster would refuse, or that is not understood here, is an error.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from devtools.services.http_service import HttpService, QuietHandler

BULK = "/_bulk"
Answer = tuple[int, Any]


@dataclass
class StandInIndex:
    """An index. ``documents`` by id: version and source; a source None is a tombstone. ``numbers``:
    fields that hold numbers alone, as a mapping has it."""

    documents: dict[str, tuple[int, dict[str, Any] | None]] = field(default_factory=dict)
    numbers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ClusterCall:
    """A request. ``number`` is that of bulk requests, from 1 on; 0 for others."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    number: int


Fault = Callable[[ClusterCall], int | None]
"""Returns the status that a request is answered with, before anything is done; 0 closes the
connection, once everything was done; None: it is carried out."""
ItemFault = Callable[[int, int], Answer | None]
"""Returns the status and type of the error of an item of a bulk request (its number, and the
item's place); None: it is carried out."""


class SearchServer(HttpService):
    """The cluster. ``authorization``: what requests must bring."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(_Handler, context=context)
        self.indexes: dict[str, StandInIndex] = {}
        self.calls: list[ClusterCall] = []
        self.fault: Fault = lambda _: None
        self.item_fault: ItemFault = lambda *_: None
        self.authorization: str | None = None
        self.bulk_bytes_max = 1 << 30
        self._bulks = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self.endpoint

    def sources(self, index: str) -> dict[str, dict[str, Any]]:
        """Return the documents of an index that a search finds, by id."""
        with self._lock:
            known = self.indexes.get(index, StandInIndex()).documents
            return {name: source for name, (_, source) in known.items() if source is not None}

    def require_user(self, user: str, password: str) -> None:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.authorization = f"Basic {pair}"

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Return status and document for a request; the status 0 is no answer."""
        parts = urlsplit(target)
        with self._lock:
            self._bulks += parts.path == BULK
            number = self._bulks if parts.path == BULK else 0
            call = ClusterCall(method, parts.path, headers, body, number)
            self.calls.append(call)
            status = self.fault(call)
            if status:
                return status, {"error": {"type": "circuit_breaking_exception", "reason": "row!"}}
            if self.authorization not in (None, headers.get("authorization")):
                return 401, {"error": {"type": "security_exception", "reason": "row!"}}
            answer = self._done(call, parse_qs(parts.query))
            return (0, None) if status == 0 else answer

    def _done(self, call: ClusterCall, query: Mapping[str, list[str]]) -> Answer:
        names = [unquote(name) for name in call.path.strip("/").split("/")]
        if (call.method, names) == ("POST", ["_bulk"]):
            assert call.headers["content-type"] == "application/x-ndjson"
            if len(call.body) > self.bulk_bytes_max:
                return 413, None
            return 200, self._bulk(call)
        if len(names) == 2 and names[1] == "_refresh" and call.method == "POST":
            there = names[0] in self.indexes
            return (200, {}) if there else (404, {"error": {"type": "index_not_found_exception"}})
        if len(names) == 2 and names[1] == "_delete_by_query" and call.method == "POST":
            return self._delete_by_query(names[0], json.loads(call.body))
        assert len(names) == 3 and names[1] == "_doc", call.path
        return self._document(call, names[0], names[2], create=query.get("op_type") == ["create"])

    def _document(self, call: ClusterCall, index: str, name: str, *, create: bool) -> Answer:
        known = self.indexes.setdefault(index, StandInIndex()).documents
        if call.method == "GET":
            there = known.get(name)
            return (200, {"_source": there[1]}) if there else (404, {"found": False})
        assert call.method == "PUT" and create
        if name in known:
            return 409, {"error": {"type": "version_conflict_engine_exception"}}
        known[name] = (1, json.loads(call.body))
        return 201, {"result": "created"}

    def _delete_by_query(self, index: str, body: Mapping[str, Any]) -> Answer:
        ((name, limit),) = body["query"]["range"].items()
        known = self.indexes[index].documents
        found = [
            one
            for one, (_, source) in known.items()
            if source is not None and source[name] < limit["lt"]
        ]
        for one in found:
            known[one] = (known[one][0] + 1, None)
        return 200, {"deleted": len(found), "timed_out": False, "failures": []} | {
            "version_conflicts": 0
        }

    def _bulk(self, call: ClusterCall) -> Any:
        assert call.body.endswith(b"\n")
        lines = iter(call.body.splitlines())
        items = []
        for place, line in enumerate(lines):
            ((action, head),) = json.loads(line).items()
            assert head["version_type"] == "external" and len(head["_id"].encode()) <= 512
            assert head["_index"] == head["_index"].lower()
            source = json.loads(next(lines)) if action == "index" else None
            fault = self.item_fault(call.number, place)
            status, kind = fault or self._item(action, head, source)
            error = {"error": {"type": kind, "reason": f"row! {source}"}} if kind else {}
            items.append({action: {"status": status, **error}})
        return {"errors": any("error" in one for item in items for one in item.values())} | {
            "items": items
        }

    def _item(
        self, action: str, head: Mapping[str, Any], source: dict[str, Any] | None
    ) -> tuple[int, str | None]:
        index = self.indexes.setdefault(head["_index"], StandInIndex())
        before = index.documents.get(head["_id"])
        if source is not None and any(
            not isinstance(source.get(name), int | float | None) for name in index.numbers
        ):
            return 400, "mapper_parsing_exception"
        if before is not None and head["version"] <= before[0]:
            return 409, "version_conflict_engine_exception"
        index.documents[head["_id"]] = (head["version"], source)
        if action == "delete":
            return (404 if before is None or before[1] is None else 200), None
        return (201 if before is None else 200), None


class _Handler(QuietHandler):
    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        cluster: SearchServer = self.server.service
        headers, body = self.received_headers(), self.received_body()
        status, document = cluster.answer(self.command, self.path, headers, body)
        raw = b"" if document is None else json.dumps(document).encode()
        self.respond(status, raw, {"Content-Type": "application/json"})
