"""Signatures that prove a watermark in the source's log to be this session's.

Anyone who may write a message to the log, or to the watermark table, may write one that looks like
ours, and anyone who sees our statements knows what a watermark looks like. So each carries a
signature of its content, made with a secret that a session creates and keeps in its memory: it is
in no statement, log, error, manifest or message. A signature is valid for one watermark only, and
the core counts each watermark once: a copy adds nothing.

Watermarks of sessions before this one have no valid signature, and need none: nothing waits for
them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time

from tideline_capture.core.events import Watermark, WatermarkKind

_SECRET_BYTES = 32
_SIGNATURE_BYTES = 15
"""120 bits, 20 characters: as much as the watermark table has room for behind the longest token."""
CLOCK_MAX_US = 253_402_300_800_000_000
"""The end of the year 9999: nothing that reads a clock knows a later time."""

_KINDS = {kind.value: kind for kind in WatermarkKind}
_TOKEN = re.compile(r"[0-9A-Za-z.-]{1,64}", re.ASCII)
_CLOCK = re.compile(r"[0-9]{1,18}", re.ASCII)


def round_token() -> str:
    """Return the token of a round of the catalog: greater, as a text, than those of the rounds that
    this process began before it."""
    return f"{time.monotonic_ns():020d}.{secrets.token_hex(8)}"


class WatermarkKey:
    """Makes and judges the watermarks of one session of the chain ``incarnation``. Thread-safe."""

    __slots__ = ("_secret", "incarnation")

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self._secret = secrets.token_bytes(_SECRET_BYTES)

    def sign(self, kind: WatermarkKind, token: str, clock_us: int) -> str:
        """Return 20 letters, digits, ``-`` and ``_`` that only this session can make."""
        return self._signed(f"{kind.value} {token} {clock_us}")

    def opened(self, kind: str, token: str, clock_us: str, signature: str) -> Watermark | None:
        """Return the watermark that the log holds as this text; None if this session did not write
        it. Never raises, whatever is given."""
        if kind not in _KINDS or not _TOKEN.fullmatch(token) or not _CLOCK.fullmatch(clock_us):
            return None
        made = self._signed(f"{kind} {token} {clock_us}")
        if not signature.isascii() or not hmac.compare_digest(made, signature):
            return None
        clock = int(clock_us)
        return Watermark(_KINDS[kind], token, clock) if clock < CLOCK_MAX_US else None

    def _signed(self, text: str) -> str:
        message = f"{self.incarnation} {text}".encode()
        made = hmac.digest(self._secret, message, hashlib.sha256)
        return base64.urlsafe_b64encode(made[:_SIGNATURE_BYTES]).decode()
