"""Credentials of a profile in ``~/.aws``, by the library that AWS's own command uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from tideline.contract.errors import Misconfigured, Unavailable

_FRESH = timedelta(minutes=5)
"""The time after which credentials are asked for again; the library renews those that end."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Credentials of S3, and the time until which they may be used without asking again; None: for
    as long as they are in the settings."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False)
    until: datetime | None = None


class AwsProfile:
    """The credentials of the profile ``name``: static keys, a role, a process, single sign-on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._credentials = _credentials(name)

    def keys(self) -> Keys:
        """Return the credentials as they are now.

        Raises Unavailable where whoever gives them does not.
        """
        # heavy: it is installed for profiles only
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = self._credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise Unavailable(
                f"the AWS profile {self._name} gave no credentials: {type(error).__name__}",
                hint="aws sts get-caller-identity --profile shows what it says to this machine",
            ) from None
        until = datetime.now(UTC) + _FRESH
        return Keys(found.access_key, found.secret_key, found.token, until)


@cache
def _credentials(name: str) -> Any:
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ModuleNotFoundError:
        raise Misconfigured(
            "an AWS profile needs the Python package botocore, which is not installed",
            hint="pip install 'tideline-cdc[aws]', or give access_key_id and secret_access_key",
        ) from None
    try:
        found = Session(profile=name).get_credentials()
    except BotoCoreError as error:
        raise Misconfigured(
            f"the AWS profile {name} cannot be used: {type(error).__name__}",
            hint="~/.aws/config and ~/.aws/credentials of this user have the profiles",
        ) from None
    if found is None:
        raise Misconfigured(
            f"the AWS profile {name} has no credentials",
            hint="~/.aws/config and ~/.aws/credentials of this user have the profiles",
        )
    return found
