"""Makes the client of a place in S3, or in a store like it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, S3Store, from_url

from tideline.aws_profile import AwsProfile
from tideline.settings.object_storage import ObjectStorage

ENCRYPTIONS: Mapping[str, str] = {"sse-s3": "AES256", "sse-kms": "aws:kms"}
"""By ``encryption`` of the settings: the name that S3 gives it in a request."""


def s3_client(place: ObjectStorage, *, timeout_s: float) -> S3Store:
    """Return a client whose own retries are off; no request is sent yet.

    Raises Misconfigured for credentials or a CA file that cannot be read.
    """
    parts = urlsplit(place.url)
    timeout = timedelta(seconds=timeout_s)
    return S3Store(
        place.bucket,
        prefix=parts.path.strip("/") or None,
        client_options=_client_options(place, timeout),
        retry_config={"max_retries": 0, "retry_timeout": timeout},
        credential_provider=_provider(place),
        **s3_options(place),
    )


def cloud_client(place: ObjectStorage, *, timeout_s: float) -> GCSStore | AzureStore:
    """Return a client of Google's or Azure's store, whose own retries are off; no request is sent
    yet. All access is the environment's, by the library's own names."""
    timeout = timedelta(seconds=timeout_s)
    client = from_url(
        place.url,
        client_options={"timeout": timeout},
        retry_config={"max_retries": 0, "retry_timeout": timeout},
    )
    return cast(GCSStore | AzureStore, client)


def s3_options(place: ObjectStorage) -> dict[str, Any]:
    """Return the address, the encryption and the keys of the settings, by obstore's names."""
    options: dict[str, Any] = {"virtual_hosted_style_request": not place.path_style}
    if (endpoint := place.bucket_endpoint) is not None:
        options["endpoint"] = endpoint
    if place.region is not None:
        options["region"] = place.region
    if place.encryption is not None:
        options["server_side_encryption"] = ENCRYPTIONS[place.encryption]
    if place.kms_key is not None:
        options["sse_kms_key_id"] = place.kms_key
    if (keys := place.keys()) is not None:
        options["access_key_id"] = keys.access_key_id
        options["secret_access_key"] = keys.secret_access_key
        if keys.session_token is not None:
            options["session_token"] = keys.session_token
    return options


def _client_options(place: ObjectStorage, timeout: timedelta) -> Any:
    options: dict[str, Any] = {"timeout": timeout}
    if (endpoint := place.bucket_endpoint) is not None:
        options["allow_http"] = urlsplit(endpoint).scheme == "http"
    if (authorities := place.authorities()) is not None:
        options["root_certificate"] = authorities
    return options


def _provider(place: ObjectStorage) -> Callable[[], Any] | None:
    """Return the function that obstore asks for credentials; None: it finds them itself."""
    if place.profile is None:
        return None
    profile = AwsProfile(place.profile)

    def keys() -> dict[str, Any]:
        found = profile.keys()
        return {
            "access_key_id": found.access_key_id,
            "secret_access_key": found.secret_access_key,
            "token": found.session_token,
            "expires_at": found.until,
        }

    return keys
