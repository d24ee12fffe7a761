"""Reads the files of authorities that settings name."""

from __future__ import annotations

from pathlib import Path

from tideline.contract.errors import Misconfigured


def read_certificates(file: Path, key: str) -> bytes:
    """Return the certificates (PEM) in ``file``, which the setting ``key`` names.

    Raises Misconfigured where there is none to read.
    """
    try:
        found = file.read_bytes()
    except OSError as error:
        raise Misconfigured(
            f"{key} cannot be read: {error.strerror}", hint="name a file that this user may read"
        ) from None
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise Misconfigured(f"{key} has no certificate", hint="it holds certificates as PEM")
    return found
