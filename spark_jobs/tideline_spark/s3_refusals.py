"""Interprets what S3 refuses, from the exceptions of Spark's client for it, S3A.

Only the HTTP status, S3's error code and the bucket leave this module. They are read from the Java
exceptions and not from their text, in which names of objects stand: these hold values of partition
columns. A HEAD has no body, and so no code: of these the status alone is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable

_NO_CREDENTIALS = frozenset(
    {"NoAuthWithAWSException", "NoAwsCredentialsException", "CredentialInitializationException"}
)
_NOT_MADE = frozenset({"InstantiationIOException"})
"""S3A makes each provider of credentials when it starts; one without its profile cannot be made."""
_EXPIRED = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
)
_ELSEWHERE = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_CLOCK = "RequestTimeTooSkewed"
_KMS = re.compile(r"\bkms:")
"""The pattern of S3's own words where KMS refused: the code says no more than AccessDenied."""
_CODE = re.compile(r"[A-Za-z.]{1,60}")
_BUCKET = re.compile(r"\bs3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?=/)")
"""The pattern of a bucket in a message of S3A's, before any name of an object: a slash in one is
percent-encoded."""
_OF = "of [store] and [warehouse], whichever is in that bucket"
_DOCS = "docs/DEPLOYMENT.md#s3"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of S3's: in the words of an error, and which of our errors it is."""

    what: str
    names: str
    hint: str
    kind: type[TidelineError] = Misconfigured

    def error(self, doing: str) -> TidelineError:
        """Return the error for it while ``doing`` something."""
        return self.kind(f"{self.what} while {doing}: {self.names}", hint=self.hint)


@dataclass(slots=True)
class _Response:
    """The status, code and words of S3's answer, as far as the exceptions have them."""

    status: int | None = None
    code: str = ""
    message: str = ""
    bucket: str = ""


def refusal_of(causes: Iterable[Any]) -> Refusal | None:
    """Return what S3 refused, from a failure and its causes in Java, outermost first; None where it
    refused nothing for good."""
    answer, classes = _Response(), set[str]()
    for one in causes:
        try:
            classes.add(str(one.getClass().getSimpleName()))
            _add(answer, one)
        except (AttributeError, TypeError, Py4JError):
            continue  # An exception of Python's.
    if classes & _NO_CREDENTIALS:
        return Refusal(
            "there are no credentials for S3",
            _named(answer, *sorted(classes & _NO_CREDENTIALS)),
            f"set access_key_id and secret_access_key, or profile, {_OF}, or give the process that"
            f" runs Spark a role or the usual AWS variables; executors need them, too ({_DOCS})",
        )
    if classes & _NOT_MADE:
        return Refusal(
            "Spark's client for S3 cannot be made",
            _named(answer, *sorted(classes & _NOT_MADE)),
            "the profile must be in ~/.aws/credentials of the user that runs Spark, and of its"
            f" executors: check profile {_OF} ({_DOCS})",
        )
    return None if answer.status is None else _interpreted(answer)


def _interpreted(answer: _Response) -> Refusal | None:
    names = _named(answer, " ".join(filter(None, (str(answer.status), answer.code))))
    if answer.code in _EXPIRED:
        return Refusal(
            "S3 refuses credentials that have expired",
            names,
            "renew the temporary keys (access_key_id, secret_access_key and session_token, or the"
            f" profile) {_OF}, or of the environment: a new run reads them ({_DOCS})",
            # As a rule others renew them: whoever repeats the run, as Airflow does, may have them.
            Unavailable,
        )
    if answer.code.startswith("KMS.") or _KMS.search(answer.message):
        return Refusal(
            "S3 may not use the key of KMS, or the key is disabled",
            names,
            f"check kms_key {_OF}, that the key is enabled, and that the credentials have"
            " kms:Decrypt and kms:GenerateDataKey on it (docs/DEPLOYMENT.md#permissions)",
        )
    if answer.code == _CLOCK:
        return Refusal(
            "S3 refuses requests whose time is wrong",
            names,
            "set the clock of the machine that runs Spark, and of its executors",
        )
    if answer.code == "NoSuchBucket":
        return Refusal(
            "there is no such bucket",
            names,
            f"create the bucket, or correct store.url and warehouse.url ({_DOCS})",
        )
    if answer.code in _ELSEWHERE or answer.status == 301:
        return Refusal(
            "the bucket is in another region", names, f"set region {_OF}, to the bucket's ({_DOCS})"
        )
    if answer.status in (401, 403) or answer.code == "InvalidToken":
        return Refusal(
            "S3 refuses access",
            names,
            f"check access_key_id and secret_access_key, or profile, {_OF}, or the credentials of"
            " the environment, and that they may read, write and list"
            " (docs/DEPLOYMENT.md#permissions)",
        )
    if answer.status == 400 and not answer.code:
        return Refusal(
            "S3 refuses a request without a reason",
            names,
            "as a rule temporary keys have expired (session_token, or the profile's), else region"
            f" is wrong: check them {_OF} ({_DOCS})",
            Unavailable,
        )
    return None


def _add(answer: _Response, cause: Any) -> None:
    """Add what one exception says. Raises Py4JError for one that is no answer of S3's."""
    if not answer.bucket and (found := _BUCKET.search(str(cause.getMessage()))):
        answer.bucket = found[1]
    if answer.status is None:
        answer.status = int(cause.statusCode())
        if (details := cause.awsErrorDetails()) is not None:
            code = str(details.errorCode() or "")
            answer.code = code if _CODE.fullmatch(code) else ""
            answer.message = str(details.errorMessage() or "")


def _named(answer: _Response, *names: str) -> str:
    bucket = [f"bucket {answer.bucket}"] if answer.bucket else []
    return ", ".join((*names, *bucket))
