"""Avro as the form of events, with the schema registry that knows their schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from tideline.settings.addresses import check_https
from tideline.settings.base import Effect, Section
from tideline.settings.secrets import known, secret_of


class AvroSettings(Section):
    """Avro, by the protocol of Confluent's schema registry."""

    effect = Effect.COMMAND

    registry: str | None = None
    """The schema registry: `https://host` with the path that it has there; `http://` only for this
    machine."""
    user: str | None = None
    """The user at the registry, by HTTP Basic."""
    password: SecretStr | None = None
    """That user's password; better in a file."""
    password_file: Path | None = None
    """A file that holds the password and nothing else."""
    ca_file: Path | None = None
    """A file with the certificates (PEM) of the authority of a registry with a private one; the
    machine's own authorities stay trusted."""
    subjects: Literal["topic", "record"] = "topic"
    """The names of subjects. `topic`: that of the topic with `-key` and `-value` (Confluent's
    TopicNameStrategy). `record`: the full name of the record (RecordNameStrategy)."""
    register_schemas: bool = True
    """Schemas that the registry lacks are registered. `false`: they are only looked up, and one
    that is not there stops the publisher by name."""
    timeout_s: Annotated[float, Field(ge=0.1, le=300)] = 4.0
    """The time limit of one request to the registry."""

    @field_validator("registry")
    @classmethod
    def _known_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        access = "set avro.user and avro.password_file"
        check_https(url, "https://host/path", of="a registry", access=access, alone=True)
        return url.rstrip("/")

    def secret(self) -> str | None:
        """Return the password, from the setting or the file. Raises Misconfigured for an unreadable
        file."""
        return secret_of(self.password, self.password_file, key="publish.….avro.password")

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here."""
        return known(self.secret)
