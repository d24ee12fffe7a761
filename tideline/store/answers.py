"""Interprets an object store's errors: repeat the request, or stop and let the operator act.

The text of obstore's errors holds the server's whole answer, which may quote an access key id or
a signature. Only the HTTP status, S3's error code and the kind of the failed connection are passed
on.
"""

from __future__ import annotations

import errno
import re

from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from tideline.contract.errors import Misconfigured

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"(?:<Code>|\(code: )([A-Za-z.]{1,60})(?:</Code>|\))")
"""The pattern of a code in an error's body, and in obstore's text for one key of a deletion."""
_CONNECTION = re.compile(r"kind: (Timeout|Connect|Request|Interrupted|Decode)\b")
_TLS = re.compile(r"InvalidCertificate\(\s*([A-Za-z]+)|InvalidMessage\(\s*InvalidContentType")
"""The pattern of a TLS error of the client; the word is its kind."""
_NO_CREDENTIALS = re.compile(r"External AWS credential provider: Unavailable\b")
"""The pattern of what is left of `AwsProfile.keys`'s error on its way through obstore."""
_OS_ERROR = re.compile(r"os error (\d{1,4})")

_REPEATED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 507, 508})
_DENIED_STATUSES = ("401", "403")
_FINAL_OS_ERRORS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
)
_CONNECTION_WORDS = {"Timeout": "no answer in time", "Connect": "no connection"}
_CREDENTIALS_HINT = (
    "check the store's access_key_id and secret_access_key (or AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY) and that they may read, write and list; a store other than Amazon's"
    " also needs its endpoint"
)


class Unanswered(Exception):
    """A request that may or may not have had its effect; the same bytes may be sent again."""


def interpret(
    error: BaseError | OSError | NotImplementedError, *, url: str, request: str
) -> Unanswered | Misconfigured:
    """Return the exception for ``error`` of ``request`` (``create <key>``): repeat it, or an
    operator acts."""
    text = str(error)
    about = f"{request} in {url}"
    if _NO_CREDENTIALS.search(text):
        return Unanswered(f"{request}: the AWS profile gives no credentials now")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return Misconfigured(
            f"the store refused {about}: {_shortened(text)}", hint=_CREDENTIALS_HINT
        )
    if isinstance(error, NotSupportedError | NotImplementedError):
        return Misconfigured(
            f"the store cannot do {about}", hint="use a store with create-only PUT"
        )
    if isinstance(error, InvalidPathError):
        return Misconfigured(f"not a key that the store takes: {about}")
    if isinstance(error, FileNotFoundError) and is_missing_bucket(error, writing=True):
        return missing_bucket(url, request)
    if tls := _TLS.search(text):
        return Misconfigured(
            f"no verified TLS to the store: {request} in {url}: {tls[1] or 'it speaks no TLS'}",
            hint="ca_file, or SSL_CERT_FILE, names a file with the store's authority; the"
            " certificate must be for the host of store.endpoint; http:// goes without encryption,"
            " on a trusted network",
        )
    if "Received redirect without LOCATION" in text:
        return Misconfigured(
            f"the store sends {about} elsewhere", hint="set store.region to the bucket's region"
        )
    if _is_final(error, text):
        status = _STATUS.search(text)
        denied = status is not None and status[1] in _DENIED_STATUSES
        hint = _CREDENTIALS_HINT if denied else "check the store's settings"
        return Misconfigured(f"the store refused {about}: {_shortened(text)}", hint=hint)
    return Unanswered(f"{request}: {_shortened(text)}")


def is_missing_bucket(error: FileNotFoundError, *, writing: bool) -> bool:
    """Return whether the bucket is missing, and not the object; a PUT can miss nothing else."""
    text = str(error)
    return "<Code>NoSuchBucket</Code>" in text or (writing and "status code: 404" in text)


def missing_bucket(url: str, request: str) -> Misconfigured:
    return Misconfigured(
        f"no such bucket: {request} in {url}", hint="create the bucket, or correct store.url"
    )


def _is_final(error: Exception, text: str) -> bool:
    status = _STATUS.search(text)
    if status:
        return int(status[1]) not in _REPEATED_STATUSES
    code = _CODE.search(text)
    if code and code[1] == "AccessDenied":
        return True
    numbers = [int(number) for number in _OS_ERROR.findall(text)]
    if isinstance(error, OSError) and error.errno is not None:
        numbers.append(error.errno)
    return any(number in _FINAL_OS_ERRORS for number in numbers)


def _shortened(text: str) -> str:
    """Return the parts of an error's text that are safe to show."""
    words = []
    if status := _STATUS.search(text):
        words.append(f"status {status[1]}")
    if code := _CODE.search(text):
        words.append(code[1])
    if connection := _CONNECTION.search(text):
        words.append(_CONNECTION_WORDS.get(connection[1], "the connection broke"))
    if number := _OS_ERROR.search(text):
        words.append(errno.errorcode.get(int(number[1]), f"os error {number[1]}"))
    return ", ".join(words) or "no usable answer"
