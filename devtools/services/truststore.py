"""The machine's certificate authorities as a Java keystore.

A Java that was unpacked without root has none: Debian builds that file when the package
ca-certificates-java is installed. Without it, Java reaches nothing over https. The format is JKS
version 2 with trusted certificates only; OpenJDK's ``sun.security.provider.JavaKeyStore`` says how.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
from collections.abc import Iterable
from pathlib import Path

PASSWORD = "changeit"
"""Java's own default; it guards the file's digest, nothing secret."""

_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED = 2
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_DEBIAN_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def authorities() -> list[bytes]:
    """Return the machine's certificate authorities in DER form; none without a bundle."""
    given = os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, _DEBIAN_BUNDLE
    for name in given:
        if name and Path(name).is_file():
            return [ssl.PEM_cert_to_DER_cert(pem) for pem in _PEM.findall(Path(name).read_text())]
    return []


def keystore(certificates: Iterable[bytes]) -> bytes:
    """Make a keystore that trusts ``certificates`` (each in DER form)."""
    entries = [
        struct.pack(">i", _TRUSTED)
        + _text(f"authority-{number}")
        + struct.pack(">q", 0)  # when it was added
        + _text("X.509")
        + struct.pack(">i", len(certificate))
        + certificate
        for number, certificate in enumerate(certificates)
    ]
    body = struct.pack(">Iii", _MAGIC, _VERSION, len(entries)) + b"".join(entries)
    salted = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    return body + hashlib.sha1(salted).digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
