"""TLS to PostgreSQL: the trusted certificates, and the meaning of a failed handshake.

libpq brings no authorities: without a file it refuses to verify, and ``system`` asks the OpenSSL
that it was built with. The one in the driver's wheel looks into a folder of the machine where that
was made, which does not exist here: so it gets this machine's file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tideline.authorities import authorities_file
from tideline.contract.errors import Misconfigured
from tideline.settings.sources.postgres import PostgresTls

_UNVERIFIED = re.compile(
    r"certificate verify failed|unknown ca|certificate expired|bad certificate|certificate unknown"
    r"|certificate required|unsupported protocol|handshake failure|wrong version number"
)
_UNREADABLE = re.compile(
    r'root certificate file|could not (?:load|read) |private key file|certificate file "'
)
_OTHER_HOST = re.compile(r"does not match host name|host name from server certificate")
_OTHERWISE = (
    "sslrootcert=/path/to/ca.pem in source.url names the server's own authority,"
    " ?sslmode=disable goes without encryption, on this machine or a trusted network"
)


def arguments(tls: PostgresTls) -> Mapping[str, Any]:
    """Return libpq's parameters, for what the url gives and what it does not: ``PGSSLMODE`` is
    ignored.

    Authorities, where it names none, are those that libpq itself was given (``PGSSLROOTCERT``,
    ``~/.postgresql/root.crt``), else the machine's; the machine's, too, where it says ``system``.
    """
    given = tls.root_certificate not in (None, "system") or (not tls.root_certificate and _given())
    if tls.mode != "verify-full" or given:
        return {"sslmode": tls.mode}
    return {"sslmode": tls.mode, "sslrootcert": str(authorities_file() or "system")}


def _given() -> bool:
    if os.environ.get("PGSSLROOTCERT"):
        return True
    try:
        return Path("~/.postgresql/root.crt").expanduser().exists()
    except (OSError, RuntimeError):  # A user without a home, or one that we may not see.
        return False


def no_tls(text: str, tls: PostgresTls) -> Misconfigured | None:
    """Return our error where ``text``, libpq's words on a connection that failed, says that there
    is no session as ``tls`` wants it; None when it says something else."""
    words = " ".join(text.split())
    if "server does not support SSL" in words:
        hint = f"turn TLS on at the server (ssl = on); {_OTHERWISE}"
    elif "no pg_hba.conf entry" in words and "no encryption" in words:
        hint = f"the server wants TLS: take sslmode={tls.mode} out of source.url"
    elif "certificate" in words and _UNREADABLE.search(words):
        hint = "correct sslrootcert (or sslcert, sslkey) in source.url, and make the file readable"
    elif _OTHER_HOST.search(words):
        hint = (
            "let source.url name the host that the certificate is for;"
            " ?sslmode=verify-ca&sslrootcert=/path/to/ca.pem takes any host of that authority"
        )
    elif _UNVERIFIED.search(words):
        hint = _OTHERWISE
    else:
        return None
    return Misconfigured(f"no verified TLS to the source: {words}", hint=hint)
