"""Events as signed requests to an endpoint: one after the other, each repeated until it is taken.

They arrive in order, and some again after a crash: a request is known by its ``Idempotency-Key``,
``{pipeline}:{publisher}:{incarnation}:{epoch}:{first}-{last}``, with the sequences of its first and
its last event.
"""

from __future__ import annotations

from collections.abc import Sequence

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OrderScope, OutputContext
from tideline_publish.outputs.envelope import in_envelopes
from tideline_publish.outputs.repeated import RequestOutput
from tideline_publish.outputs.webhook.client import PostAnswer, WebhookClient

_ENDPOINT = frozenset({401, 403, 404, 405, 407, 410})
_PASSING = frozenset({408, 425, 429})


class WebhookOutput(RequestOutput[WebhookClient, ChangeEvent]):
    """See `Output`."""

    def __init__(self, context: OutputContext) -> None:
        self._settings = context.settings.webhook
        super().__init__(context, self._settings, "webhook", OrderScope.ALL)
        self._id_prefix = ""

    def open(self, logged: ChainPosition) -> ChainPosition:
        """See `Output`."""
        self.close()
        name = f"{self._context.pipeline}:{self._context.publisher}"
        self._id_prefix = f"{name}:{logged.incarnation}:{logged.epoch}"
        self._client = WebhookClient(self._settings, self._context.system, self._content_type())
        self._open_letters(logged.seq)
        return logged

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""
        for event in in_envelopes(events):
            if event.value is not None:  # A tombstone is for logs that are compacted.
                self._gather(event, len(event.value))

    def _send(self, sent: Sequence[ChangeEvent]) -> None:
        """Send events until they are taken. Of those that are refused, each half is sent for
        itself: only single events are put aside."""
        body, request_id = self._body(sent), f"{self._id_prefix}:{_span(sent)}"
        taking = f"the endpoint took changes {_span(sent)}"
        status = self._repeated(taking, lambda: self._posted(body, request_id)).status
        if 200 <= status < 300:
            return
        if status < 400 or status in _ENDPOINT:
            raise self._of_endpoint(status)
        if self._letters is None:
            raise Misconfigured(
                f"the endpoint {self._settings.host} refuses changes {_span(sent)}: {status}",
                hint="correct the endpoint; or set webhook.on_refused and"
                " webhook.dead_letter_folder, to go on behind what it refuses",
            )
        if len(sent) == 1:
            self._put_aside(self._letters, sent[0], status, f"status {status}")
            return
        self._halved(sent)

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
