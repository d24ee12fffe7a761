"""Rows and documents in a search cluster, by bulk requests.

Each document has the sequence of its change for its version: what comes again, or late, is refused
as a conflict of versions, and is no harm. So the index of each document is that of its last change,
whatever was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec
import structlog

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline.contract.schema import parse_table
from tideline_publish.events import TRUNCATED, ChangeEvent
from tideline_publish.outputs.base import OrderScope, OutputContext
from tideline_publish.outputs.dead_letters import DeadLetters
from tideline_publish.outputs.names import name_of
from tideline_publish.outputs.opensearch.actions import BulkAction, action_of
from tideline_publish.outputs.opensearch.client import ClusterAnswer, ClusterClient

PAUSE_MIN_S = 0.5
_RETRY_AFTER_MAX_S = 3_600.0
_INDEX_CHARS_MAX = 255
_BULK = "/_bulk?filter_path=errors,items.*.status,items.*.error.type"
_BLOCKED = "cluster_block_exception"
_NO_INDEX = "index_not_found_exception"

log = structlog.get_logger("tideline.publisher")


class OpenSearchOutput:
    """See `Output`. ``dead_letters``: the number of events that were refused and put aside."""

    def __init__(self, context: OutputContext) -> None:
        self._context = context
        self._settings = context.settings.opensearch
        self._client: ClusterClient | None = None
        self._letters: DeadLetters | None = None
        self._batch: list[BulkAction] = []
        self._batch_bytes = 0
        self._indexes: dict[str, str] = {}
        self.order = OrderScope.KEY
        self.record_bytes_max: int | None = None
        self.keeps_position = False
        self.whole_only = False
        self.gathers_s = 0.0

    @property
    def dead_letters(self) -> int:
        return 0 if self._letters is None else self._letters.count

    def open(self, logged: ChainPosition) -> ChainPosition:
        """See `Output`."""
        self.close()
        self._client = ClusterClient(self._settings, self._context.system)
        self._mark(logged.incarnation)
        if self._settings.on_refused == "dead_letter":
            assert self._settings.dead_letter_folder is not None
            self._letters = DeadLetters(
                self._settings.dead_letter_folder,
                f"{self._context.pipeline}.{self._context.publisher}",
                logged.seq,
                setting="opensearch.dead_letter_folder",
            )
        return logged

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""
        for event in events:
            if event.op == TRUNCATED:
                self._flush()
                self._truncate(event)
                continue
            action = action_of(event, self._index(event.table), self._settings.sequence_field)
            size = len(action.lines)
            full = len(self._batch) >= self._settings.batch_events_max
            if full or self._batch_bytes + size > self._settings.batch_bytes_max:
                self._flush()
            self._batch.append(action)
            self._batch_bytes += size

    def settle(self, position: ChainPosition) -> None:
        """See `Output`."""
        self._flush()

    def close(self) -> None:
        """See `Output`."""
        client, letters = self._client, self._letters
        self._client = self._letters = None
        self._batch, self._batch_bytes = [], 0
        if client is not None:
            client.close()
        if letters is not None:
            with suppress(OSError):
                letters.close()

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

    def _flush(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if batch:
            self._send(batch)

    def _send(self, actions: Sequence[BulkAction]) -> None:
        """Send ``actions`` until each is taken, or refused for good. What is not taken for now is
        sent again: versions keep the order."""
        pause_s = PAUSE_MIN_S
        while actions:
            answer = self._answered("POST", _BULK, b"".join(one.lines for one in actions))
            if answer.status == 413:
                self._halved(actions)
                return
            items = _at(answer.body, "items")
            if answer.status != 200 or not isinstance(items, list):
                raise self._of_cluster(answer)
            if len(items) != len(actions):
                raise Unavailable(f"the cluster {self._settings.host} answers for other documents")
            actions = [
                action
                for action, item in zip(actions, items, strict=True)
                if not self._is_settled(action, item)
            ]
            if actions:
                self._wait(pause_s, f"{len(actions)} documents were not taken")
                pause_s = min(pause_s * 2, self._settings.pause_max_s)

    def _halved(self, actions: Sequence[BulkAction]) -> None:
        if len(actions) == 1:
            self._refuse(actions[0].event, 413, "it is too large")
            return
        half = len(actions) // 2
        self._send(actions[:half])
        self._send(actions[half:])

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
        self._letters.add(event, status, self._context.system.wall_us())
        log.warning(
            "the index refuses a document; its event is in the dead letters",
            reason=kind,
            table=event.table,
            seq=event.seq,
            file=str(self._letters.path),
            dead_letters=self._letters.count,
        )

    def _truncate(self, event: ChangeEvent) -> None:
        """Remove the documents of a table that are older than its truncate."""
        index = self._index(event.table)
        older = {"range": {self._settings.sequence_field: {"lt": event.seq}}}
        body = msgspec.json.encode({"query": older})
        pause_s = PAUSE_MIN_S
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
            self._wait(pause_s, "documents of a truncated table were not removed")
            pause_s = min(pause_s * 2, self._settings.pause_max_s)

    def _answered(self, method: str, path: str, body: bytes | None = None) -> ClusterAnswer:
        """Return the answer to a request that is repeated while it may pass later."""
        client = self._client
        assert client is not None
        lines = path is _BULK
        pause_s = PAUSE_MIN_S
        self._wait(0.0)
        while True:
            answer, reason = _tried(lambda: client.call(method, path, body, lines=lines))
            if not reason:
                return answer
            given_s = max(pause_s, min(answer.retry_after_s, _RETRY_AFTER_MAX_S))
            pause_s = min(pause_s * 2, self._settings.pause_max_s)
            self._wait(given_s, reason)

    def _wait(self, seconds: float, reason: str = "") -> None:
        if reason:
            log.warning(
                "the cluster takes no documents now; they are sent again",
                host=self._settings.host,
                reason=reason,
                pause_s=round(seconds, 1),
            )
        if not self._context.pause(seconds):
            raise Unavailable(f"stopped before the cluster {self._settings.host} took documents")

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
