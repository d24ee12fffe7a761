"""Rows and documents in a search cluster, by bulk requests.

Each document has the sequence of its change for its version: what comes again, or late, is refused
as a conflict of versions, and is no harm. So the index of each document is that of its last change,
whatever was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline.contract.schema import parse_table
from tideline_publish.events import TRUNCATED, ChangeEvent
from tideline_publish.outputs.base import OrderScope, OutputContext
from tideline_publish.outputs.names import name_of
from tideline_publish.outputs.opensearch.actions import BulkAction, action_of
from tideline_publish.outputs.opensearch.client import ClusterAnswer, ClusterClient
from tideline_publish.outputs.repeated import RequestOutput

_INDEX_CHARS_MAX = 255
_BULK = "/_bulk?filter_path=errors,items.*.status,items.*.error.type"
_BLOCKED = "cluster_block_exception"
_NO_INDEX = "index_not_found_exception"


class OpenSearchOutput(RequestOutput[ClusterClient, BulkAction]):
    """See `Output`."""

    def __init__(self, context: OutputContext) -> None:
        self._settings = context.settings.opensearch
        super().__init__(context, self._settings, "opensearch", OrderScope.KEY)
        self._indexes: dict[str, str] = {}
        self._taking = f"the cluster {self._settings.host} took documents"

    def open(self, logged: ChainPosition) -> ChainPosition:
        """See `Output`."""
        self.close()
        self._client = ClusterClient(self._settings, self._context.system)
        self._mark(logged.incarnation)
        self._open_letters(logged.seq)
        return logged

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""
        for event in events:
            if event.op == TRUNCATED:
                self._flush()
                self._truncate(event)
                continue
            action = action_of(event, self._index(event.table), self._settings.sequence_field)
            self._gather(action, len(action.lines))

    def _index(self, table: str) -> str:
        if table not in self._indexes:
            name = name_of(
                self._settings.index,
                self._context.pipeline,
                parse_table(table),
                setting="opensearch.index",
                chars_max=_INDEX_CHARS_MAX,
                lower=True,
            )
            if name[0] in "_-+.":
                raise Misconfigured(
                    f"no index can have the name {name}",
                    hint="have opensearch.index begin with a small letter",
                )
            self._indexes[table] = name
        return self._indexes[table]

    def _mark(self, incarnation: str) -> None:
        """Note whose sequences are the versions. Raises Misconfigured where they are those of
        another life of the pipeline: all of this one would count as old."""
        name = quote(f"{self._context.pipeline}.{self._context.publisher}", safe="")
        path = f"/{self._settings.marker_index}/_doc/{name}"
        body = msgspec.json.encode({"incarnation": incarnation})
        made = self._answered("PUT", f"{path}?op_type=create", body)
        if made.status in (200, 201):
            return
        if made.status == 409:
            found = self._answered("GET", path)
            if _at(found.body, "_source", "incarnation") == incarnation:
                return
            if found.status == 200:
                raise Misconfigured(
                    f"the indexes at {self._settings.host} have documents of an earlier life of"
                    f" {self._context.pipeline}, whose sequences are other ones",
                    hint=f"remove the indexes, then the document"
                    f" {self._context.pipeline}.{self._context.publisher} of"
                    f" {self._settings.marker_index}; or set another opensearch.index and another"
                    " marker_index",
                )
            made = found
        raise self._of_cluster(made)

    def _send(self, sent: Sequence[BulkAction]) -> None:
        """Send actions until each is taken, or refused for good. What is not taken for now is sent
        again: versions keep the order."""
        tries = self._tries(self._taking)
        while sent:
            answer = self._answered("POST", _BULK, b"".join(one.lines for one in sent))
            if answer.status == 413:
                if len(sent) > 1:
                    self._halved(sent)
                else:
                    self._refuse(sent[0].event, 413, "it is too large")
                return
            items = _at(answer.body, "items")
            if answer.status != 200 or not isinstance(items, list):
                raise self._of_cluster(answer)
            if len(items) != len(sent):
                raise Unavailable(f"the cluster {self._settings.host} answers for other documents")
            sent = [
                action
                for action, item in zip(sent, items, strict=True)
                if not self._is_settled(action, item)
            ]
            if sent:
                tries.again(f"{len(sent)} documents were not taken")

    def _is_settled(self, action: BulkAction, item: Any) -> bool:
        """Return whether an action needs no other try; one that was refused is put aside."""
        found = next(iter(item.values()), None) if isinstance(item, dict) else None
        status, kind = _at(found, "status"), _at(found, "error", "type")
        if not isinstance(status, int):
            raise Unavailable(f"the cluster {self._settings.host} answers without a status")
        if 200 <= status < 300 or status == 409:  # 409: there is this version, or a later one.
            return True
        if status == 404 and kind is None:  # Deleted, and was not there.
            return True
        if status == 429 or status >= 500 or kind == _BLOCKED:
            return False
        if status in (401, 403) or kind == _NO_INDEX:
            raise self._of_cluster(ClusterAnswer(status, {"error": {"type": kind}}))
        self._refuse(action.event, status, str(kind))
        return True

    def _refuse(self, event: ChangeEvent, status: int, kind: str) -> None:
        if self._letters is None:
            raise Misconfigured(
                f"the index {self._index(event.table)} refuses change {event.seq} of"
                f" {event.table}: {kind}",
                hint="correct the index's mapping; or set opensearch.on_refused and"
                " opensearch.dead_letter_folder, to go on behind what it refuses",
            )
        self._put_aside(self._letters, event, status, kind)

    def _truncate(self, event: ChangeEvent) -> None:
        """Remove the documents of a table that are older than its truncate."""
        index = self._index(event.table)
        older = {"range": {self._settings.sequence_field: {"lt": event.seq}}}
        body = msgspec.json.encode({"query": older})
        tries = self._tries(self._taking)
        while True:
            refreshed = self._answered("POST", f"/{index}/_refresh")
            if refreshed.status == 404:  # There is no index yet.
                return
            path = f"/{index}/_delete_by_query?conflicts=proceed"
            answer = self._answered("POST", path, body)
            if answer.status != 200:
                raise self._of_cluster(answer)
            left = _at(answer.body, "version_conflicts") or _at(answer.body, "failures")
            if not left and _at(answer.body, "timed_out") is False:
                return
            tries.again("documents of a truncated table were not removed")

    def _answered(self, method: str, path: str, body: bytes | None = None) -> ClusterAnswer:
        """Return the answer to a request that is repeated while it may pass later."""
        client = self._client
        assert client is not None
        lines = path is _BULK
        return self._repeated(
            self._taking, lambda: _tried(lambda: client.call(method, path, body, lines=lines))
        )

    def _of_cluster(self, answer: ClusterAnswer) -> Misconfigured:
        kind = _at(answer.body, "error", "type")
        reason = f"{answer.status} {kind}" if isinstance(kind, str) else str(answer.status)
        return Misconfigured(
            f"the cluster {self._settings.host} takes no requests of ours: {reason}",
            hint="correct opensearch.url and the credentials, or what this user may do there"
            " (docs/PUBLISHING.md#opensearch)",
        )


def _tried(call: Callable[[], ClusterAnswer]) -> tuple[ClusterAnswer, str]:
    """Return the answer, and why the request has to be repeated; ``""`` where it has not."""
    try:
        answer = call()
    except Unavailable as error:
        return ClusterAnswer(0), str(error)
    blocked = _at(answer.body, "error", "type") == _BLOCKED
    return answer, f"status {answer.status}" if answer.is_passing or blocked else ""


def _at(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found
