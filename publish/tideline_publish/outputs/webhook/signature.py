"""Signs requests, as Standard Webhooks does (https://www.standardwebhooks.com): receivers have
libraries that verify it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from tideline.contract.errors import Misconfigured

_PREFIX = "whsec_"


def signing_keys(text: str) -> tuple[bytes, ...]:
    """Return the keys that the secrets in ``text`` are, one in a line. Raises Misconfigured for
    one that is not what it begins as."""
    return tuple(_key(line.strip()) for line in text.splitlines() if line.strip())


def signature(keys: Sequence[bytes], request_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the signatures over id, time and body, by each key."""
    signed = f"{request_id}.{timestamp_s}.".encode() + body
    found = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    return " ".join(f"v1,{base64.b64encode(one).decode()}" for one in found)


def _key(secret: str) -> bytes:
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise Misconfigured(
            "a secret of the webhook begins with whsec_ and has no Base64 behind it",
            hint="copy it whole into webhook.secret_file",
        ) from None
