"""A client for Redis, with its errors translated to ours: the library quotes the url."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.settings import Control
from tideline.settings.redis_url import redis_files

_NO_TLS = (
    *("WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"),
    *(
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
    ),
)
_TLS_HINT = (
    "?ssl_ca_certs=/path/to/ca.pem in control.url names the server's own authority; the certificate"
    " must be for the host of control.url, and its server must have TLS"
)
COMMANDS = "+@stream +@sortedset +@string +@transaction +@connection +del +eval +pttl"
"""The commands that clients and worker need, as in Redis's access lists, on the keys
``tideline:*``."""


def connect(control: Control, *, timeout_s: float) -> redis.Redis:
    """Make a client for `Control.address` (``redis://``, ``rediss://`` with verified TLS,
    ``unix://``).

    Nothing is sent yet. Every wait is bounded by ``timeout_s``; the client repeats nothing. Raises
    Misconfigured for an invalid url, and for its files that cannot be read.
    """
    _check_files(control.url.get_secret_value())
    try:
        return redis.Redis.from_url(
            control.address(),
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
        )
    except (ValueError, TypeError):
        # The library quotes parts of the url, and so perhaps the password.
        raise Misconfigured(
            "control.url is not a Redis address",
            hint="write redis://host:port/0 or rediss://user:password@host:port/0, with special"
            " characters of the password percent-encoded",
        ) from None


def _check_files(url: str) -> None:
    for name, path in redis_files(url).items():
        try:
            if name == "ssl_ca_certs":
                ssl.create_default_context(cafile=path)
            else:
                Path(path).read_bytes()
        except OSError:  # ssl.SSLError is one
            raise Misconfigured(
                f"the file of control.url's {name} cannot be read as certificates",
                hint=f"correct {name}, and make the file readable for this user",
            ) from None


@contextmanager
def redis_errors() -> Iterator[None]:
    """Turn redis's exceptions into our errors, without any text that could hold a secret."""
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise translate(error) from None


def translate(error: Exception) -> TidelineError:
    """Return Unavailable for a server that does not answer, Misconfigured for one that refuses
    us."""
    refusals = (
        redis.AuthenticationError,
        redis.exceptions.AuthenticationWrongNumberOfArgsError,
        redis.exceptions.NoPermissionError,
    )
    if isinstance(error, refusals):
        return Misconfigured(
            f"redis refuses the login of control.url ({type(error).__name__})",
            hint="put the user into control.url and the password into control.password_file or"
            " TIDELINE_CONTROL__PASSWORD; for a user"
            f" of its own: ACL SETUSER tideline on >PASSWORD ~tideline:* {COMMANDS}",
        )
    if (words := _no_tls(error)) is not None:
        return Misconfigured(f"no verified TLS to redis: {words}", hint=_TLS_HINT)
    if isinstance(error, redis.TimeoutError):
        if "handshake" in str(error.__cause__ or error.__context__):
            return Unavailable("redis did not answer to TLS in time", hint=_TLS_HINT)
        return Unavailable("redis did not answer in time", hint="see control.url")
    if isinstance(error, redis.ConnectionError | OSError):
        return Unavailable(
            f"redis cannot be reached ({_reason(error)})",
            hint="start Redis or Valkey, or correct control.url",
        )
    return Unavailable(f"redis answered with an error: {_reason(error)}")


def _no_tls(error: BaseException | None) -> str | None:
    """Return why a handshake failed in a way that another try does not cure; None for other
    errors."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            return error.reason.lower().replace("_", " ")
        error = error.__cause__ or error.__context__
    return None


def _reason(error: BaseException) -> str:
    """Return the kind of error and its system error number's text; never the library's own text."""
    cause: Any = error.__cause__ or error.__context__ or error
    words = getattr(cause, "strerror", None) or str(error).partition(" ")[0].strip(".,:")
    return f"{type(error).__name__}: {words}"
