"""Sends requests to an endpoint, and reads nothing of its answers but status and Retry-After: a
body may quote rows."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, SSLError

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.settings.outputs.webhook import WebhookSettings
from tideline.system import System
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
        self._pool = urllib3.PoolManager(
            maxsize=1,
            retries=False,
            timeout=urllib3.Timeout(total=settings.timeout_s),
            ssl_context=_context(settings),
        )

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
            raise self._explained(error) from None
        answer.drain_conn() if _is_short(answer.headers) else answer.close()
        answer.release_conn()
        return PostAnswer(answer.status, self._retry_after_s(answer.headers))

    def close(self) -> None:
        """End the connection."""
        self._pool.clear()

    def _explained(self, error: HTTPError) -> TidelineError:
        cause: BaseException = error
        while isinstance(cause, MaxRetryError) and cause.reason is not None:
            cause = cause.reason
        if isinstance(cause, SSLError):
            inner = cause.args[0] if cause.args else cause
            if isinstance(inner, ssl.SSLCertVerificationError):
                return Misconfigured(
                    f"the endpoint {self._host} is not verified: {inner.verify_message}",
                    hint="webhook.ca_file names an authority of your own",
                )
        kind = "no connection" if isinstance(cause, NewConnectionError) else type(cause).__name__
        return Unavailable(f"the endpoint {self._host} does not answer: {kind}")

    def _retry_after_s(self, headers: Mapping[str, str]) -> float:
        """Return what Retry-After says, which is seconds or a time; 0 without it."""
        given = headers.get("Retry-After", "").strip()
        if given.isdecimal():
            return float(given)
        try:
            until = parsedate_to_datetime(given)
        except ValueError:
            return 0.0
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        now = datetime.fromtimestamp(self._system.wall_us() / 1e6, UTC)
        return max(0.0, (until - now).total_seconds())


def _is_short(headers: Mapping[str, str]) -> bool:
    """Return whether a body is so short that the connection is kept for it."""
    length = headers.get("Content-Length", "")
    return length.isdecimal() and int(length) <= 1 << 16


def _context(settings: WebhookSettings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if settings.ca_file is not None:
        try:
            context.load_verify_locations(settings.ca_file)
        except OSError:  # ssl.SSLError is one
            raise Misconfigured(
                f"webhook.ca_file {settings.ca_file} cannot be read as certificates",
                hint="correct it, and make the file readable for this user",
            ) from None
    return context
