"""Events as signed requests to an endpoint: one after the other, each repeated until it is taken.

They arrive in order, and some again after a crash: a request is known by its ``Idempotency-Key``,
``{pipeline}:{publisher}:{incarnation}:{epoch}:{first}-{last}``, with the sequences of its first and
its last event.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import structlog

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OrderScope, OutputContext
from tideline_publish.outputs.dead_letters import DeadLetters
from tideline_publish.outputs.envelope import in_envelopes
from tideline_publish.outputs.webhook.client import PostAnswer, WebhookClient

PAUSE_MIN_S = 0.5
_RETRY_AFTER_MAX_S = 3_600.0
_ENDPOINT = frozenset({401, 403, 404, 405, 407, 410})
_PASSING = frozenset({408, 425, 429})

log = structlog.get_logger("tideline.publisher")


class WebhookOutput:
    """See `Output`. ``dead_letters``: the number of events that were refused and put aside."""

    def __init__(self, context: OutputContext) -> None:
        self._context = context
        self._settings = context.settings.webhook
        self._name = f"{context.pipeline}:{context.publisher}"
        self._client: WebhookClient | None = None
        self._letters: DeadLetters | None = None
        self._batch: list[ChangeEvent] = []
        self._batch_bytes = 0
        self._id_prefix = ""
        self.order = OrderScope.ALL
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
        self._id_prefix = f"{self._name}:{logged.incarnation}:{logged.epoch}"
        self._client = WebhookClient(self._settings, self._context.system, self._content_type())
        if self._settings.on_refused == "dead_letter":
            assert self._settings.dead_letter_folder is not None
            name = self._name.replace(":", ".")
            self._letters = DeadLetters(
                self._settings.dead_letter_folder,
                name,
                logged.seq,
                setting="webhook.dead_letter_folder",
            )
        return logged

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""
        for event in in_envelopes(events):
            if event.value is None:  # A tombstone is for logs that are compacted.
                continue
            size = len(event.value)
            if self._batch and (
                len(self._batch) >= self._settings.batch_events_max
                or self._batch_bytes + size > self._settings.batch_bytes_max
            ):
                self._flush()
            self._batch.append(event)
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

    def _flush(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if batch:
            self._send(batch)

    def _send(self, events: Sequence[ChangeEvent]) -> None:
        """Send ``events`` until they are taken. Of those that are refused, each half is sent for
        itself: only single events are put aside."""
        status = self._answered(events)
        if 200 <= status < 300:
            return
        if status < 400 or status in _ENDPOINT:
            raise self._of_endpoint(status)
        if self._letters is None:
            raise Misconfigured(
                f"the endpoint {self._settings.host} refuses changes {_span(events)}: {status}",
                hint="correct the endpoint; or set webhook.on_refused and"
                " webhook.dead_letter_folder, to go on behind what it refuses",
            )
        if len(events) == 1:
            self._put_aside(self._letters, events[0], status)
            return
        half = len(events) // 2
        self._send(events[:half])
        self._send(events[half:])

    def _put_aside(self, letters: DeadLetters, event: ChangeEvent, status: int) -> None:
        letters.add(event, status, self._context.system.wall_us())
        log.warning(
            "the endpoint refuses a change; it is in the dead letters",
            status=status,
            table=event.table,
            seq=event.seq,
            file=str(letters.path),
            dead_letters=letters.count,
        )

    def _answered(self, events: Sequence[ChangeEvent]) -> int:
        """Return the status of the answer, of one that is about these events or the endpoint."""
        body, request_id = self._body(events), f"{self._id_prefix}:{_span(events)}"
        pause_s = PAUSE_MIN_S
        given_s = 0.0
        while self._context.pause(given_s):
            answer, reason = self._posted(body, request_id)
            if not reason:
                return answer.status
            given_s = max(pause_s, min(answer.retry_after_s, _RETRY_AFTER_MAX_S))
            pause_s = min(pause_s * 2, self._settings.pause_max_s)
            log.warning(
                "the endpoint took no events; they are sent again",
                reason=reason,
                changes=_span(events),
                pause_s=round(given_s, 1),
            )
        raise Unavailable(f"stopped before the endpoint took changes {_span(events)}")

    def _posted(self, body: bytes, request_id: str) -> tuple[PostAnswer, str]:
        """Return the answer, and why the request has to be repeated; ``""`` where it has not."""
        assert self._client is not None
        try:
            answer = self._client.post(body, request_id)
        except Unavailable as error:
            return PostAnswer(0), str(error)
        passing = answer.status in _PASSING or answer.status >= 500
        return answer, f"status {answer.status}" if passing else ""

    def _body(self, events: Sequence[ChangeEvent]) -> bytes:
        values = [event.value or b"null" for event in events]
        if self._settings.body == "array":
            return b"[" + b",".join(values) + b"]"
        return b"\n".join(values) + b"\n"

    def _content_type(self) -> str:
        if self._settings.body == "ndjson":
            return "application/x-ndjson"
        in_batches = self._context.settings.format == "cloudevents"
        return "application/cloudevents-batch+json" if in_batches else "application/json"

    def _of_endpoint(self, status: int) -> Misconfigured:
        host = self._settings.host
        if status < 400:
            return Misconfigured(
                f"the endpoint {host} answers with status {status}; redirects are not followed",
                hint="have webhook.url name the address that takes events itself",
            )
        return Misconfigured(
            f"the endpoint {host} takes no requests of ours: {status}",
            hint="correct webhook.url and webhook.secret_file, or what the endpoint permits",
        )


def _span(events: Sequence[ChangeEvent]) -> str:
    return f"{_order(events[0])}-{_order(events[-1])}"


def _order(event: ChangeEvent) -> str:
    return f"{event.seq}_{event.part}" if event.part else str(event.seq)
