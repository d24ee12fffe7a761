"""Makes sessions of botocore that find credentials where S3's clients do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from botocore.session import Session

_NO_PROFILES: Mapping[str, Any] = {
    "profile": (None, None, None, None),
    "config_file": (None, None, "/dev/null", None),
    "credentials_file": (None, None, "/dev/null", None),
    "region": (None, ["AWS_REGION", "AWS_DEFAULT_REGION"], None, None),
}
"""Variables of a session in which neither ``AWS_PROFILE`` nor the profile ``default`` counts, as
(key of the file, variables of the environment, default, conversion)."""
_OLD_FILES = ("ec2-credentials-file", "boto-config")
"""Providers that read files of botocore's predecessors, which no other client reads."""


@cache
def aws_session(profile: str | None, region: str | None) -> Session:
    """Return the process's session: each reads megabytes of descriptions. Without a profile its
    credentials come from where S3's clients get theirs: variables, a web identity, a role."""
    if profile is not None:
        return Session(profile=profile)
    session = Session(session_vars=_NO_PROFILES)
    if region is not None:  # STS, which is asked for a web identity's keys, has one per region.
        session.set_config_variable("region", region)
    providers = session.get_component("credential_provider")
    for name in _OLD_FILES:
        providers.remove(name)
    return session
