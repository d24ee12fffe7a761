"""Requests to a search cluster. No reason in its answers is read: they quote documents."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from urllib3.exceptions import HTTPError

from tideline.contract.errors import Unavailable
from tideline.settings.outputs.opensearch import OpenSearchSettings
from tideline.system import System
from tideline_publish.http import explained, make_pool, retry_after_s

_ANSWER_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """The status of an answer, its body (None where it is no JSON), and how long to wait before
    the request is repeated."""

    status: int
    body: Any = None
    retry_after_s: float = 0.0

    @property
    def is_passing(self) -> bool:
        """Return whether the same request may be taken later."""
        return self.status in (408, 429) or self.status >= 500


class ClusterClient:
    """One connection to a cluster. Redirects are answers like others; nothing is repeated here."""

    def __init__(self, settings: OpenSearchSettings, system: System) -> None:
        self._url = settings.url or ""
        self._host = settings.host
        self._system = system
        self._headers = {"User-Agent": "tideline", **_credentials(settings)}
        self._pool = make_pool(settings.timeout_s, settings.ca_file, setting="opensearch.ca_file")

    def call(
        self, method: str, path: str, body: bytes | None = None, *, lines: bool = False
    ) -> ClusterAnswer:
        """Send a request with a body of JSON, or of lines of it. Raises Unavailable where there is
        no whole answer, Misconfigured for a cluster that is not verified."""
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/x-ndjson" if lines else "application/json"
        try:
            answer = self._pool.urlopen(
                method,
                f"{self._url}{path}",
                body=body,
                headers=headers,
                redirect=False,
                retries=False,
                preload_content=False,
            )
            raw = answer.read(_ANSWER_BYTES_MAX + 1)
            answer.release_conn()
        except HTTPError as error:
            place = f"the cluster {self._host}"
            raise explained(error, place, setting="opensearch.ca_file") from None
        if len(raw) > _ANSWER_BYTES_MAX:
            raise Unavailable(f"the cluster {self._host} answers with more than can be read")
        return ClusterAnswer(
            answer.status, _decoded(raw), retry_after_s(answer.headers, self._system)
        )

    def close(self) -> None:
        """End the connection."""
        self._pool.clear()


def _credentials(settings: OpenSearchSettings) -> Mapping[str, str]:
    key = settings.api_key_text()
    if key is not None:
        return {"Authorization": f"ApiKey {key}"}
    if settings.user is None:
        return {}
    found = f"{settings.user}:{settings.password_text()}".encode()
    return {"Authorization": f"Basic {base64.b64encode(found).decode()}"}


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
