"""Sends requests to an endpoint, and reads nothing of its answers but status and Retry-After: a
body may quote rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from urllib3.exceptions import HTTPError

from tideline.settings.outputs.webhook import WebhookSettings
from tideline.system import System
from tideline_publish.http import explained, make_pool, retry_after_s
from tideline_publish.outputs.webhook.signature import signature, signing_keys


@dataclass(frozen=True, slots=True)
class PostAnswer:
    """The status of an answer, and how long to wait before the request is repeated."""

    status: int
    retry_after_s: float = 0.0


class WebhookClient:
    """Signs and sends. Redirects are answers like others; nothing is repeated here."""

    def __init__(self, settings: WebhookSettings, system: System, content_type: str) -> None:
        assert settings.url is not None
        self._url = settings.url.get_secret_value()
        self._host = settings.host
        self._system = system
        self._keys = signing_keys(settings.secret_text() or "")
        self._type = content_type
        self._pool = make_pool(settings.timeout_s, settings.ca_file, setting="webhook.ca_file")

    def post(self, body: bytes, request_id: str) -> PostAnswer:
        """Send ``body`` once. Raises Unavailable where there is no answer, Misconfigured for an
        endpoint that is not verified."""
        timestamp_s = self._system.wall_us() // 1_000_000
        headers = {
            "Content-Type": self._type,
            "User-Agent": "tideline",
            "Idempotency-Key": request_id,
            "webhook-id": request_id,
            "webhook-timestamp": str(timestamp_s),
            "webhook-signature": signature(self._keys, request_id, timestamp_s, body),
        }
        try:
            answer = self._pool.urlopen(
                "POST",
                self._url,
                body=body,
                headers=headers,
                redirect=False,
                retries=False,
                preload_content=False,
            )
        except HTTPError as error:
            raise explained(
                error, f"the endpoint {self._host}", setting="webhook.ca_file"
            ) from None
        answer.drain_conn() if _is_short(answer.headers) else answer.close()
        answer.release_conn()
        return PostAnswer(answer.status, retry_after_s(answer.headers, self._system))

    def close(self) -> None:
        """End the connection."""
        self._pool.clear()


def _is_short(headers: Mapping[str, str]) -> bool:
    """Return whether a body is so short that the connection is kept for it."""
    length = headers.get("Content-Length", "")
    return length.isdecimal() and int(length) <= 1 << 16
