"""The keys of a Redis or Valkey: address and password."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import SecretStr, field_validator

from tideline.settings.base import Section
from tideline.settings.redis_url import check_redis
from tideline.settings.secrets import hidden, known, secret_of, with_password


class RedisServer(Section, shared=True):
    """A server, as ``section`` of the settings names it."""

    section: ClassVar[str]

    url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """`redis://host:port/0`; or `rediss://…` with TLS, verified: `?ssl_ca_certs=/path/to/ca.pem`
    names another authority ([DEPLOYMENT](DEPLOYMENT.md#tls))."""
    password: SecretStr | None = None
    """The password, if it is not in the url; better in a file, or in the environment."""
    password_file: Path | None = None
    """A file that holds the password and nothing else."""

    @field_validator("url")
    @classmethod
    def _known_address(cls, url: SecretStr) -> SecretStr:
        check_redis(url.get_secret_value())
        return url

    def address(self) -> str:
        """Return the url with the password from the url, the setting or the file put in.

        Raises Misconfigured for an unreadable file.
        """
        password = secret_of(self.password, self.password_file, key=f"{self.section}.password")
        return with_password(self.url.get_secret_value(), password)

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here. Raises
        nothing."""
        return hidden(self.url.get_secret_value(), *known(self.address))
