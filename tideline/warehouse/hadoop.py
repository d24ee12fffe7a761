"""Settings of Spark's client for S3, S3A: how it reaches a store and a warehouse there.

They hold credentials, so they reach a job through the environment of its process (`handed_on`,
`taken`) and stand in no plan, log or argument.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence

import msgspec

from tideline.contract.errors import Misconfigured
from tideline.settings import Settings, Store
from tideline.settings.object_storage import ObjectStorage

SETTINGS_VARIABLE = "TIDELINE_SPARK_SETTINGS"
"""The environment variable in which a job finds settings of Spark as a JSON object."""

AUTHORITIES = "spark.tideline.authorities"
"""The setting, of ours and not of Spark's, with the files (PEM, separated as in PATH) of
authorities that Java trusts besides its own."""

_CREDENTIALS = "software.amazon.awssdk.auth.credentials"
_OF_ENVIRONMENT = (
    # Spark turns the variables for keys into settings, which reach its executors, too.
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    f"{_CREDENTIALS}.EnvironmentVariableCredentialsProvider",
)
_WEB_IDENTITY_VARIABLE = "AWS_WEB_IDENTITY_TOKEN_FILE"
_OF_WEB_IDENTITY = f"{_CREDENTIALS}.WebIdentityTokenFileCredentialsProvider"
_OF_INSTANCE = "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
_OF_PROFILE = ("org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",)
_OF_KEYS = ("org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",)
_OF_TEMPORARY_KEYS = ("org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",)
_ENCRYPTIONS = {"sse-s3": "AES256", "sse-kms": "SSE-KMS"}

S3_CLIENT = "spark.hadoop.fs.s3.impl"
"""The setting with the class of the client: where it is given, a job reaches S3."""
_S3: Mapping[str, str] = {
    # Addresses begin with s3://, as everywhere but in Hadoop.
    S3_CLIENT: "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    # A merge has patience of its own (merge.retry_s); the defaults here would take a quarter of an
    # hour for one request of a store that refuses all. Amazon's library repeats a request once, and
    # S3A what that comes to four times: a request that is never answered ends after five to ten
    # time limits.
    "spark.hadoop.fs.s3a.attempts.maximum": "1",
    "spark.hadoop.fs.s3a.retry.limit": "4",
    "spark.hadoop.fs.s3a.retry.interval": "250ms",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "6",
    "spark.hadoop.fs.s3a.retry.throttle.interval": "250ms",
    # Files of a table have names that nothing else has: nothing needs to be looked for first.
    "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
}

_TIMEOUTS: Mapping[str, int] = {
    "connection.establish.timeout": 1,
    # Between two packets of an answer. S3A's own default is 200 s.
    "connection.timeout": 1,
    "connection.request.timeout": 1,
    # An upload of 64 MB: longer than any other request. S3A's own default is 15 minutes.
    "connection.part.upload.timeout": 4,
}
"""Time limits of S3A, as multiples of that of a request. It raises all but the last to 15 s."""


def s3_settings(settings: Settings) -> dict[str, str]:
    """Return the settings of Spark for the places of a pipeline that are in S3; {} for none.

    Raises Misconfigured for a secret that cannot be read.
    """
    places = [settings.store, settings.warehouse_storage]
    return place_settings(places, timeout_s=settings.store.timeout_s)


def place_settings(
    places: Sequence[ObjectStorage], *, timeout_s: float = Store.model_fields["timeout_s"].default
) -> dict[str, str]:
    """Return the settings of Spark for those of ``places`` that are in S3; {} for none.

    ``timeout_s`` is the time limit of a request. Raises Misconfigured for a secret that cannot be
    read.
    """
    in_s3 = [place for place in places if place.in_s3]
    found = dict(_S3) if in_s3 else {}
    for place in in_s3:
        prefix = f"spark.hadoop.fs.s3a.bucket.{place.bucket}."
        found |= {f"{prefix}{name}": value for name, value in _of_place(place)}
        found |= {
            f"{prefix}{name}": f"{round(1000 * times * timeout_s)}ms"
            for name, times in _TIMEOUTS.items()
        }
    if files := {str(place.ca_file): None for place in in_s3 if place.ca_file is not None}:
        found[AUTHORITIES] = os.pathsep.join(files)
    return found


def handed_on(spark_settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that hands settings of Spark to a job; {} for none."""
    return (
        {SETTINGS_VARIABLE: msgspec.json.encode(spark_settings).decode()} if spark_settings else {}
    )


def taken(environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Take the settings that were handed on out of the environment; {} without them.

    Raises Misconfigured for a variable that does not hold them.
    """
    text = environment.pop(SETTINGS_VARIABLE, None)
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except ValueError:
        raise Misconfigured(
            f"{SETTINGS_VARIABLE} does not hold settings of Spark",
            hint="unset it: jobs are given it",
        ) from None


def _of_place(place: ObjectStorage) -> Iterator[tuple[str, str]]:
    endpoint = place.endpoint or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        yield "endpoint", endpoint
        yield "connection.ssl.enabled", str(endpoint.startswith("https://")).lower()
    region = place.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        yield "endpoint.region", region
    yield "path.style.access", str(place.path_style).lower()
    if place.encryption is not None:
        yield "encryption.algorithm", _ENCRYPTIONS[place.encryption]
    if place.kms_key is not None:
        yield "encryption.key", place.kms_key
    yield from _credentials(place)


def _credentials(place: ObjectStorage) -> Iterator[tuple[str, str]]:
    keys = place.keys()
    if place.profile is not None:
        providers: tuple[str, ...] = _OF_PROFILE
        yield "auth.profile.name", place.profile
    elif keys is None:
        # S3A makes each provider at its start, which this one refuses without its variable.
        web = (_OF_WEB_IDENTITY,) if os.environ.get(_WEB_IDENTITY_VARIABLE) else ()
        providers = (*_OF_ENVIRONMENT, *web, _OF_INSTANCE)
    else:
        providers = _OF_KEYS if keys.session_token is None else _OF_TEMPORARY_KEYS
        yield "access.key", keys.access_key_id
        yield "secret.key", keys.secret_access_key
        if keys.session_token is not None:
            yield "session.token", keys.session_token
    yield "aws.credentials.provider", ",".join(providers)
