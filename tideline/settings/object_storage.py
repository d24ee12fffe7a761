"""The keys of a place in an object store: address, encryption and credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tideline.aws_profile import Keys
from tideline.settings.addresses import is_ip_address, split_url
from tideline.settings.base import Section
from tideline.settings.certificates import read_certificates
from tideline.settings.secrets import known, secret_of

ACCESS = (
    "endpoint",
    "region",
    "path_style",
    "ca_file",
    "encryption",
    "kms_key",
    "access_key_id",
    "secret_access_key",
    "secret_access_key_file",
    "session_token",
    "profile",
)
"""The keys that say how a place in S3 is reached."""
OBJECT_STORES = ("s3", "gs", "abfss")
"""The schemes of object stores, each as all three clients take it: the store's, the readers of
tables and Spark."""
_PLACES = (
    "file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or"
    " abfss://container@account.dfs.core.windows.net/prefix"
)
_OTHER_NAMES = {
    **dict.fromkeys(("s3a", "s3n"), "s3://bucket/prefix"),
    **dict.fromkeys(("gcs", "gcp"), "gs://bucket/prefix"),
    **dict.fromkeys(
        ("az", "azure", "adl", "abfs", "wasb", "wasbs"),
        "abfss://container@account.dfs.core.windows.net/prefix",
    ),
}
"""What only some of the clients know, and what is written instead."""


def place_url(url: str) -> str:
    """Return the url of a place without a slash at its end. Raises ValueError for one that holds
    credentials, or that not every client can serve."""
    parts = split_url(url)
    user, at, host = parts.netloc.rpartition("@")
    in_azure = parts.scheme in ("abfss", "abfs", "wasb", "wasbs")
    # A secret with a slash ends what is taken for the host; no bucket has a colon. Azure's
    # containers stand before an @.
    secret = ":" in parts.netloc or (at and not in_azure) or parts.query
    if secret and parts.scheme in (*OBJECT_STORES, *_OTHER_NAMES):
        in_s3 = parts.scheme.startswith("s3")
        place = "go into access_key_id and so on" if in_s3 else "come from the environment"
        raise ValueError(f"must not hold credentials: they {place}")
    if (instead := _OTHER_NAMES.get(parts.scheme)) is not None:
        raise ValueError(f"is written as {instead}")
    whole = {
        "file": not parts.netloc and parts.path.startswith("/") and parts.path.strip("/"),
        "memory": True,
        "s3": host,
        "gs": host,
        "abfss": user and host,
    }
    if not whole.get(parts.scheme):
        raise ValueError(f"must be {_PLACES}")
    return url.rstrip("/")


class ObjectStorage(Section, shared=True):
    """A place in an object store.

    Without a key of its own, access comes from the environment, in this order: the usual AWS
    variables, a web identity (``AWS_WEB_IDENTITY_TOKEN_FILE``), the instance's role.
    """

    section: ClassVar[str]

    url: str
    """The url of the place."""
    endpoint: str | None = None
    """The endpoint of an S3 that is not Amazon's: `https://host:port`."""
    region: str | None = None
    """The S3 region."""
    path_style: bool = True
    """The bucket stands in the path of a request, which every S3 takes; false: before the host's
    name, also of an `endpoint`, which is given without it."""
    ca_file: Path | None = None
    """A file with the certificates (PEM) of the authority of an endpoint with a private one; the
    machine's own authorities stay trusted. So does Spark, where the driver is given it: on this
    machine, with its executors, wherever they are ([CLUSTER](CLUSTER.md))."""
    encryption: Literal["sse-s3", "sse-kms"] | None = None
    """Ask the server to encrypt what is written: with a key of S3's own, or of KMS. None: as the
    bucket is set."""
    kms_key: str | None = None
    """The KMS key's id or ARN, with `encryption = "sse-kms"`; None: the bucket's or account's."""
    access_key_id: str | None = None
    """The access key of S3, if the environment does not give it; together with the secret one."""
    secret_access_key: SecretStr | None = None
    """The secret access key; better in the environment."""
    secret_access_key_file: Path | None = None
    """A file that holds the secret access key and nothing else."""
    session_token: SecretStr | None = None
    """The token that belongs to temporary keys."""
    profile: Annotated[str, Field(pattern=r"^[^\s\[\]]+$")] | None = None
    """The profile of `~/.aws` that credentials come from, instead of keys."""

    @field_validator("endpoint")
    @classmethod
    def _known_endpoint(cls, endpoint: str | None) -> str | None:
        parts = split_url(endpoint or "https://unset")
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("must be https://host:port, or http:// of a trusted network")
        return endpoint or None  # An empty variable of the environment is Amazon's, too.

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
        if self.kms_key is not None and self.encryption != "sse-kms":
            raise ValueError('has a kms_key, which counts with encryption = "sse-kms" only')
        if not self.path_style and is_ip_address(split_url(self.endpoint or "").hostname or ""):
            raise ValueError(
                "has path_style = false and an address as endpoint: no bucket can stand before it"
            )
        if self.in_object_store and not self.in_s3 and self.has_access:
            given = ", ".join(name for name in ACCESS if name in self.model_fields_set)
            raise ValueError(
                f"has keys of S3 ({given}), and is not there: the environment gives access"
            )
        return self

    @property
    def in_s3(self) -> bool:
        """Return whether the place is in S3."""
        return split_url(self.url).scheme == "s3"

    @property
    def in_object_store(self) -> bool:
        """Return whether the place is in S3 or a store like it; else in files, or in memory."""
        return split_url(self.url).scheme in OBJECT_STORES

    @property
    def bucket(self) -> str:
        """Return the bucket of a place in S3."""
        return split_url(self.url).netloc

    @property
    def has_access(self) -> bool:
        """Return whether a key says how the place is reached; else the environment alone does."""
        return not self.model_fields_set.isdisjoint(ACCESS)

    @property
    def bucket_endpoint(self) -> str | None:
        """Return the endpoint as Rust's ``object_store`` takes it; None: its own. It adds the
        bucket to the host of Amazon's endpoint alone, and to no path if the host is to have it."""
        if self.path_style:
            return self.endpoint
        endpoint = self.endpoint or os.environ.get("AWS_ENDPOINT_URL")
        if not endpoint:
            return None
        parts = split_url(endpoint)
        return parts._replace(netloc=f"{self.bucket}.{parts.netloc}").geturl()

    def access(self) -> Mapping[str, object]:
        """Return the keys that say how the place is reached."""
        return {name: getattr(self, name) for name in ACCESS}

    def secret(self) -> str | None:
        """Return the secret access key, from the setting or the file; None without either.

        Raises Misconfigured for an unreadable file.
        """
        key = f"{self.section}.secret_access_key"
        return secret_of(self.secret_access_key, self.secret_access_key_file, key=key)

    def token(self) -> str | None:
        """Return the token of temporary keys; None without one. Raises Misconfigured for one that
        is not UTF-8."""
        return secret_of(self.session_token, None, key=f"{self.section}.session_token")

    def keys(self) -> Keys | None:
        """Return the keys that the settings hold; None where credentials come from elsewhere.

        Raises as `secret` and `token` do.
        """
        secret = self.secret()
        if self.access_key_id is None or secret is None:
            return None
        return Keys(self.access_key_id, secret, self.token())

    def authorities(self) -> bytes | None:
        """Return the certificates in ``ca_file``; None without one.

        Raises Misconfigured where there is none to read.
        """
        if self.ca_file is None:
            return None
        return read_certificates(self.ca_file, f"{self.section}.ca_file")

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here. Raises
        nothing."""
        return [*known(self.secret), *known(self.token)]
