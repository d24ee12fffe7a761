"""Shared by all that speaks HTTP: verified certificates, errors without urls, Retry-After."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, SSLError

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.system import System


def tls_context(ca_file: Path | None, *, setting: str) -> ssl.SSLContext:
    """Return a context that verifies certificates by the machine's authorities, and those in
    ``ca_file``, of that ``setting``. Raises Misconfigured for a file without certificates."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError:  # ssl.SSLError is one
            raise Misconfigured(
                f"{setting} {ca_file} cannot be read as certificates",
                hint="correct it, and make the file readable for this user",
            ) from None
    return context


def make_pool(timeout_s: float, ca_file: Path | None, *, setting: str) -> urllib3.PoolManager:
    """Return a client of one connection that repeats nothing; otherwise as `tls_context`."""
    return urllib3.PoolManager(
        maxsize=1,
        retries=False,
        timeout=urllib3.Timeout(total=timeout_s),
        ssl_context=tls_context(ca_file, setting=setting),
    )


def explained(error: HTTPError, place: str, *, setting: str) -> TidelineError:
    """Return the error to raise for a request to ``place`` that got no answer: Misconfigured for a
    server that is not verified, by the file in ``setting``, else Unavailable."""
    cause: BaseException = error
    while isinstance(cause, MaxRetryError) and cause.reason is not None:
        cause = cause.reason
    if isinstance(cause, SSLError):
        inner = cause.args[0] if cause.args else cause
        if isinstance(inner, ssl.SSLCertVerificationError):
            return Misconfigured(
                f"{place} is not verified: {inner.verify_message}",
                hint=f"{setting} names an authority of your own",
            )
    kind = "no connection" if isinstance(cause, NewConnectionError) else type(cause).__name__
    return Unavailable(f"{place} does not answer: {kind}")


def retry_after_s(headers: Mapping[str, str], system: System) -> float:
    """Return what Retry-After has, which is seconds or a time; 0 without it."""
    given = headers.get("Retry-After", "").strip()
    if given.isdecimal():
        return float(given)
    try:
        until = parsedate_to_datetime(given)
    except ValueError:
        return 0.0
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    now = datetime.fromtimestamp(system.wall_us() / 1e6, UTC)
    return max(0.0, (until - now).total_seconds())
