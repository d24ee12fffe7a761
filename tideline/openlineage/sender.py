"""Sends events over the OpenLineage client's HTTP transport."""

from __future__ import annotations

import ssl
from collections import Counter

from openlineage.client.event_v2 import RunEvent
from openlineage.client.transport.http import HttpConfig, HttpTransport, create_token_provider
from requests import PreparedRequest, Session

from tideline.settings import Openlineage


def _as_prepared(request: PreparedRequest) -> PreparedRequest:
    """Leave the Authorization header. Without an ``auth``, requests would replace the API key by
    the password that ~/.netrc has for the receiver's host."""
    return request


class EventSender:
    """Sends each event once to the ``url`` in the settings. ``lost`` counts undelivered events by
    reason, ``sent`` delivered ones."""

    def __init__(self, settings: Openlineage) -> None:
        session, key = Session(), settings.api_key
        session.max_redirects = 0  # the key is for this host alone
        session.auth = _as_prepared
        auth = {} if key is None else {"type": "api_key", "api_key": key.get_secret_value()}
        url, path = f"{str(settings.url).rstrip('/')}/", settings.endpoint.lstrip("/")
        config = HttpConfig(url, path, settings.timeout_s, auth=create_token_provider(auth))
        config.session, config.retry = session, {"total": 0}
        self._transport = HttpTransport(config)
        # The certificates that the system trusts, not those of certifi.
        trusted = ssl.get_default_verify_paths()
        self._transport.verify = trusted.cafile or trusted.capath or True
        self.sent = 0
        self.lost: Counter[str] = Counter()

    def send(self, event: RunEvent) -> None:
        """Deliver ``event`` within ``timeout_s``, or count it as lost. Raises nothing."""
        try:
            self._transport.emit(event)
            self.sent += 1
        except Exception as error:  # noqa: BLE001  its message may quote what was sent
            answer = getattr(error, "response", None)
            reason = type(error).__name__ if answer is None else f"status {answer.status_code}"
            self.lost[reason] += 1

    def losses(self) -> str:
        """Describe the lost events in words."""
        why = ", ".join(f"{reason} ({count})" for reason, count in sorted(self.lost.items()))
        count = self.lost.total()
        return f"{count} of {count + self.sent} OpenLineage events were not delivered: {why}"
