"""The endpoint that a publisher's events are sent to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tideline.settings.addresses import check_https, split_url
from tideline.settings.base import Count, Effect, MiB, Seconds, Section
from tideline.settings.secrets import hidden, known, secret_of


class WebhookSettings(Section):
    """The endpoint that a publisher's events are sent to, by POST."""

    effect = Effect.COMMAND

    url: SecretStr | None = None
    """`https://host/path`; `http://` only for this machine. It is shown nowhere but for its
    host."""
    secret: SecretStr | None = None
    """The secret that requests are signed with; better in a file."""
    secret_file: Path | None = None
    """A file that holds the secret; while receivers change to a new one, both, in lines of their
    own. One that begins with `whsec_` is Base64 behind it."""
    ca_file: Path | None = None
    """A file with the certificates (PEM) of the authority of an endpoint with a private one; the
    machine's own authorities stay trusted."""
    body: Literal["array", "ndjson"] = "array"
    """The body of a request: a JSON array of events, or one event in each line."""
    batch_events_max: Annotated[int, Field(ge=1, le=10_000)] = 500
    """A request has so many events at most."""
    batch_bytes_max: Annotated[Count, Field(le=64 * MiB)] = 1 * MiB
    """… and is no larger than this, but for a single event that is."""
    timeout_s: Annotated[float, Field(ge=0.1, le=300)] = 8.0
    """The time limit of one request."""
    pause_max_s: Seconds = 60.0
    """A request without an answer, or with status 408, 425, 429 or 5xx, is repeated for ever, after
    pauses that grow up to this. `Retry-After` counts where it is longer, up to an hour."""
    on_refused: Literal["stop", "dead_letter"] = "stop"
    """What is done with an event that the endpoint refuses by another 4xx: `stop` stops the
    publisher there; `dead_letter` puts it into a file, and goes on. 401, 403, 404, 405, 407, 410
    and redirects stop it in any case: they are about the endpoint."""
    dead_letter_folder: Path | None = None
    """An absolute path; `PIPELINE.PUBLISHER.jsonl` in it has the events that were refused."""

    @field_validator("url")
    @classmethod
    def _known_address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            check_https(
                url.get_secret_value(),
                "https://host/path",
                of="an endpoint",
                access="requests are signed (webhook.secret_file)",
            )
        return url

    @model_validator(mode="after")
    def _letters_have_a_place(self) -> Self:
        folder = self.dead_letter_folder
        if self.on_refused == "dead_letter" and (folder is None or not folder.is_absolute()):
            raise ValueError(
                'has on_refused = "dead_letter" and no place for events: set dead_letter_folder to'
                " an absolute path"
            )
        return self

    @property
    def host(self) -> str:
        """The host of the url, with its port."""
        return "" if self.url is None else split_url(self.url.get_secret_value()).netloc

    def secret_text(self) -> str | None:
        """Return the secrets, one in a line. Raises Misconfigured for an unreadable file."""
        return secret_of(self.secret, self.secret_file, key="publish.….webhook.secret")

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here."""
        urls = [] if self.url is None else hidden(self.url.get_secret_value())
        return [*urls, *known(self.secret_text)]
