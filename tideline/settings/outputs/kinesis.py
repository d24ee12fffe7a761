"""The Kinesis stream that a publisher's events go to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tideline.settings.addresses import is_loopback, split_url
from tideline.settings.base import Effect, MiB, Section
from tideline.settings.secrets import known, secret_of


class KinesisSettings(Section):
    """The Kinesis data stream that a publisher's events go to.

    Without a key of its own, access comes from the environment, as that of S3 does.
    """

    effect = Effect.COMMAND

    stream: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")] | None = None
    """The name of the stream, which has to be there."""
    region: str | None = None
    """Its region; None: that of the environment."""
    endpoint: str | None = None
    """The endpoint of a service that is not Amazon's, or of a private link: `https://host:port`."""
    ca_file: Path | None = None
    """A file with the certificates (PEM) of the authority of such an endpoint."""
    access_key_id: str | None = None
    """The access key, if the environment does not give it; together with the secret one."""
    secret_access_key: SecretStr | None = None
    """The secret access key; better in a file."""
    secret_access_key_file: Path | None = None
    """A file that holds the secret access key and nothing else."""
    session_token: SecretStr | None = None
    """The token that belongs to temporary keys."""
    profile: Annotated[str, Field(pattern=r"^[^\s\[\]]+$")] | None = None
    """The profile of `~/.aws` that credentials come from, instead of keys."""
    record_bytes_max: Annotated[int, Field(ge=1_024, le=10 * MiB)] = 1 * MiB
    """The largest record, with its partition key: no more than the stream takes
    (`MaxRecordSizeInKiB`)."""
    request_bytes_max: Annotated[int, Field(ge=1_024, le=10 * MiB)] = 5 * MiB
    """The records of a request, with their partition keys."""
    by_reference: bool = True
    """Of an event that is larger than a record, all but the row is sent, with the object in the
    store that has the row. `false`: such an event stops the publisher."""
    timeout_s: Annotated[float, Field(ge=0.1, le=300)] = 8.0
    """The time limit of one request."""

    @field_validator("endpoint")
    @classmethod
    def _known_endpoint(cls, endpoint: str | None) -> str | None:
        parts = split_url(endpoint or "https://unset")
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("must be https://host:port")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError("must be https://, except for a service on this machine")
        return endpoint or None

    @model_validator(mode="after")
    def _whole_credentials(self) -> Self:
        secret = self.secret_access_key or self.secret_access_key_file
        if (self.access_key_id is None) != (secret is None):
            raise ValueError(
                "access_key_id and secret_access_key, or secret_access_key_file, belong together"
            )
        if self.profile is not None and self.access_key_id is not None:
            raise ValueError("has a profile and an access key: one of them")
        if self.session_token is not None and self.access_key_id is None:
            raise ValueError("has a session_token without the keys that it belongs to")
        if self.record_bytes_max > self.request_bytes_max:
            raise ValueError("has a record_bytes_max above request_bytes_max")
        return self

    def secret(self) -> str | None:
        """Return the secret access key. Raises Misconfigured for an unreadable file."""
        return secret_of(
            self.secret_access_key,
            self.secret_access_key_file,
            key="publish.….kinesis.secret_access_key",
        )

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here."""
        token = [] if self.session_token is None else [self.session_token.get_secret_value()]
        return [*token, *known(self.secret)]
