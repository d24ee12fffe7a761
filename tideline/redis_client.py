"""A client for Redis, with its errors translated to ours: the library quotes the url."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.settings.redis_server import RedisServer
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
    "?ssl_ca_certs=/path/to/ca.pem in {url} names the server's own authority; the certificate must"
    " be for the host of {url}, and its server must have TLS"
)
_REPLIES: Mapping[str, tuple[str, str]] = {
    "OOM": (
        "redis has no memory left",
        "raise its maxmemory, or have streams keep fewer entries; its maxmemory-policy must be"
        " noeviction",
    ),
    "READONLY": (
        "the server of {url} is a replica, which takes no writes",
        "after a failover, have {url} name the new primary",
    ),
    "MISCONF": ("redis takes no writes: it cannot save its data", "see its log, and its disk"),
    "NOREPLICAS": ("redis takes no writes: too few replicas are connected", "see its replicas"),
    "LOADING": ("redis is still loading its data", "wait"),
}
"""Errors of a server that passes, by the first word of its reply: message and hint."""
COMMANDS = "+@stream +@sortedset +@string +@transaction +@connection +del +eval +pttl"
"""The commands that clients and worker need, as in Redis's access lists, on the keys
``tideline:*``."""

EVENTS_ACL = " ~tideline:* ~STREAMS +@stream +@string +@connection +@transaction +eval"
"""The rights of a publisher's user: ``STREAMS`` are the names of its streams, and of the keys that
begin with one."""
CONTROL = "control"
_CLUSTER = (
    redis.exceptions.AskError,  # MovedError is one.
    redis.exceptions.ClusterCrossSlotError,
    redis.exceptions.ClusterDownError,
)
_CLASSES: Mapping[type[Exception], str] = {
    redis.exceptions.OutOfMemoryError: "OOM",
    redis.ReadOnlyError: "READONLY",
    redis.BusyLoadingError: "LOADING",
}


def connect(server: RedisServer, *, timeout_s: float) -> redis.Redis:
    """Make a client for `RedisServer.address` (``redis://``, ``rediss://`` with verified TLS,
    ``unix://``).

    Nothing is sent yet. Every wait is bounded by ``timeout_s``; the client repeats nothing. Raises
    Misconfigured for an invalid url, and for its files that cannot be read.
    """
    _check_files(server)
    try:
        return redis.Redis.from_url(
            server.address(),
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
        )
    except (ValueError, TypeError):
        # The library quotes parts of the url, and so perhaps the password.
        raise Misconfigured(
            f"{server.section}.url is not a Redis address",
            hint="write redis://host:port/0 or rediss://user:password@host:port/0, with special"
            " characters of the password percent-encoded",
        ) from None


def _check_files(server: RedisServer) -> None:
    for name, path in redis_files(server.url.get_secret_value()).items():
        try:
            if name == "ssl_ca_certs":
                ssl.create_default_context(cafile=path)
            else:
                Path(path).read_bytes()
        except OSError:  # ssl.SSLError is one
            raise Misconfigured(
                f"the file of {server.section}.url's {name} cannot be read as certificates",
                hint=f"correct {name}, and make the file readable for this user",
            ) from None


@contextmanager
def redis_errors(section: str = CONTROL) -> Iterator[None]:
    """Turn redis's exceptions into our errors, without any text that could hold a secret.
    ``section`` of the settings names the server."""
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise translate(error, section) from None


def translate(error: Exception, section: str = CONTROL) -> TidelineError:
    """Return Unavailable for a server that does not answer, Misconfigured for one that refuses
    us."""
    tls_hint = _TLS_HINT.format(url=f"{section}.url")
    refusals = (
        redis.AuthenticationError,
        redis.exceptions.AuthenticationWrongNumberOfArgsError,
        redis.exceptions.NoPermissionError,
    )
    if isinstance(error, refusals):
        return _refusal(error, section)
    if (words := _no_tls(error)) is not None:
        return Misconfigured(f"no verified TLS to redis: {words}", hint=tls_hint)
    if isinstance(error, redis.TimeoutError):
        if "handshake" in str(error.__cause__ or error.__context__):
            return Unavailable("redis did not answer to TLS in time", hint=tls_hint)
        return Unavailable("redis did not answer in time", hint=f"see {section}.url")
    if (passing := passing_refusal(_word(error), section)) is not None:
        return passing
    if isinstance(error, _CLUSTER):
        return Misconfigured(
            f"{section}.url is of a Redis Cluster ({type(error).__name__})",
            hint="Tideline needs a single primary, with or without replicas",
        )
    if isinstance(error, redis.ConnectionError | OSError):
        return Unavailable(
            f"redis cannot be reached ({_reason(error)})",
            hint=f"start Redis or Valkey, or correct {section}.url",
        )
    return Unavailable(f"redis answered with an error: {_reason(error)}")


def passing_refusal(word: str, section: str = CONTROL) -> Unavailable | None:
    """Return the error for a server that cannot serve us now, by the first ``word`` of its reply;
    None for another reply."""
    if word not in _REPLIES:
        return None
    message, hint = (text.format(url=f"{section}.url") for text in _REPLIES[word])
    return Unavailable(f"{message} ({word})", hint=hint)


def _refusal(error: Exception, section: str) -> Misconfigured:
    own = "" if section != CONTROL else f" ~tideline:* {COMMANDS}"
    return Misconfigured(
        f"redis refuses the login of {section}.url ({type(error).__name__})",
        hint=f"put the user into {section}.url and the password into {section}.password_file"
        + (" or TIDELINE_CONTROL__PASSWORD" if own else "")
        + f"; for a user of its own: ACL SETUSER tideline on >PASSWORD{own or EVENTS_ACL}",
    )


def _word(error: Exception) -> str:
    """Return the first word of the server's reply, which the library keeps as a class."""
    for kind, word in _CLASSES.items():
        if isinstance(error, kind):
            return word
    return str(error).partition(" ")[0]


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
