"""The search cluster that a publisher's documents go to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tideline.settings.addresses import check_https, split_url
from tideline.settings.base import Count, Effect, MiB, Seconds, Section
from tideline.settings.outputs.templates import Unambiguous
from tideline.settings.secrets import known, secret_of

_INDEX = r"^([a-z0-9._-]|\{pipeline\}|\{schema\}|\{table\})+$"


class OpenSearchSettings(Section):
    """The OpenSearch or Elasticsearch that a publisher's rows, or documents, are indexed in."""

    effect = Effect.COMMAND

    url: str | None = None
    """`https://host:9200`; `http://` only for this machine."""
    index: Annotated[str, Field(pattern=_INDEX, max_length=200), Unambiguous] = (
        "{pipeline}-{schema}-{table}"
    )
    """The index of a table, or aggregate (its schema is `aggregates`); several never share one. A
    character of a name other than a-z, 0-9 and `_` is `_x`, its code in hex, and `_`
    ([PUBLISHING](PUBLISHING.md#names))."""
    marker_index: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,199}$")] = (
        "tideline-publishers"
    )
    """The index in which each publisher notes which life of the pipeline its documents are of:
    sequences begin again with another one."""
    sequence_field: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,99}$")] = "tl_seq"
    """The field of documents that has their sequence; truncates are carried out by it."""
    user: str | None = None
    """The user, for basic authentication."""
    password: SecretStr | None = None
    """That user's password; better in a file."""
    password_file: Path | None = None
    """A file that holds the password and nothing else."""
    api_key: SecretStr | None = None
    """An encoded API key, in the place of a user; better in a file."""
    api_key_file: Path | None = None
    """A file that holds the API key and nothing else."""
    ca_file: Path | None = None
    """A file with the certificates (PEM) of the authority of a cluster with a private one."""
    batch_events_max: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """A request has so many documents at most."""
    batch_bytes_max: Annotated[Count, Field(le=64 * MiB)] = 5 * MiB
    """… and is no larger than this, but for a single document that is."""
    timeout_s: Annotated[float, Field(ge=0.1, le=300)] = 8.0
    """The time limit of one request."""
    pause_max_s: Seconds = 30.0
    """What is not taken for now (no answer, 408, 429, 5xx) is sent again for ever, after pauses
    that grow up to this. `Retry-After` counts where it is longer, up to an hour."""
    on_refused: Literal["stop", "dead_letter"] = "stop"
    """What is done with a document that the index refuses, as by its mapping: `stop` stops the
    publisher there; `dead_letter` puts its event into a file, and goes on."""
    dead_letter_folder: Path | None = None
    """An absolute path; `PIPELINE.PUBLISHER.jsonl` in it has the events that were refused."""

    @field_validator("url")
    @classmethod
    def _known_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        access = "see user and api_key_file"
        check_https(url, "https://host:port", of="a cluster", access=access, alone=True)
        return url.rstrip("/")

    @model_validator(mode="after")
    def _letters_have_a_place(self) -> Self:
        folder = self.dead_letter_folder
        if self.on_refused == "dead_letter" and (folder is None or not folder.is_absolute()):
            raise ValueError(
                'has on_refused = "dead_letter" and no place for events: set dead_letter_folder to'
                " an absolute path"
            )
        return self

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        has_key = self.api_key is not None or self.api_key_file is not None
        if has_key and self.user is not None:
            raise ValueError("has both a user and an API key: leave one out")
        has_password = self.password is not None or self.password_file is not None
        if has_password != (self.user is not None):
            raise ValueError("needs both user and password_file, or neither")
        return self

    @property
    def host(self) -> str:
        """The host of the url, with its port."""
        return "" if self.url is None else split_url(self.url).netloc

    def password_text(self) -> str | None:
        """Return the password. Raises Misconfigured for an unreadable file."""
        return secret_of(self.password, self.password_file, key="publish.….opensearch.password")

    def api_key_text(self) -> str | None:
        """Return the API key. Raises Misconfigured for an unreadable file."""
        return secret_of(self.api_key, self.api_key_file, key="publish.….opensearch.api_key")

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here."""
        return [*known(self.password_text), *known(self.api_key_text)]
