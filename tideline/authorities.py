"""Finds the authorities that this machine trusts, in one file."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

FILE_VARIABLE = "SSL_CERT_FILE"
"""The environment variable that names the file in place of the machine's."""
FOLDER_VARIABLE = "SSL_CERT_DIR"
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)
"""The machine's authorities in one file, where OpenSSL of Python knows them as a folder only."""


def authorities_file() -> Path | None:
    """Return the file (PEM) that the environment names, whether it exists or not, else the
    machine's; None where there is none, or the environment names a folder only."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    if os.environ.get(FOLDER_VARIABLE):
        return None
    known = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((Path(file) for file in known if file and Path(file).is_file()), None)
