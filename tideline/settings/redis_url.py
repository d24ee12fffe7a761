"""The url of Redis: its check, its files, and whether the connection is safe."""

from __future__ import annotations

from collections.abc import Mapping

from tideline.settings.addresses import checked_port, is_loopback, one_of, query_of, split_url

_SCHEMES = ("redis", "rediss", "unix")
_QUERY = ("db",)
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_QUERY = ("ssl_cert_reqs", "ssl_check_hostname", *_FILES)
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


def check_redis(url: str) -> None:
    """Raise ValueError, without any part of the url, for one that cannot be Redis's."""
    parts = split_url(url)
    if parts.scheme not in _SCHEMES:
        raise ValueError("must be redis://host:port/0, or rediss:// with TLS, or unix:///path")
    checked_port(parts)
    query = query_of(parts)
    known = _QUERY + (_TLS_QUERY if parts.scheme == "rediss" else ())
    if set(query) - set(known):
        tls = f", with rediss:// {', '.join(_TLS_QUERY)}, too"
        raise ValueError(f"may have {', '.join(_QUERY)} behind the ?{tls}, and nothing else")
    if not query.get("db", "0").isdecimal():
        raise ValueError("must have a number in db")
    one_of(("none", "optional", "required"), query.get("ssl_cert_reqs", "none"), "ssl_cert_reqs")
    one_of(_YES + _NO, query.get("ssl_check_hostname", "true").lower(), "ssl_check_hostname")


def redis_files(url: str) -> Mapping[str, str]:
    """Return the files that ``url`` names, by parameter."""
    query = query_of(split_url(url))
    return {name: query[name] for name in _FILES if name in query}


def redis_doubt(url: str, key: str) -> tuple[str, str] | None:
    """Return the doubt about the server at ``url``, which the setting ``key`` has, and its remedy;
    None where traffic stays on this machine, or the server is verified."""
    parts = split_url(url)
    if parts.scheme == "unix" or is_loopback(parts.hostname or "localhost"):
        return None
    if parts.scheme == "redis":
        return "is not encrypted", f"write rediss:// in {key}, with a server that has TLS"
    query = query_of(parts)
    verified = query.get("ssl_cert_reqs", "required") == "required"
    if verified and query.get("ssl_check_hostname", "true").lower() in _YES:
        return None
    fix = f"take ssl_cert_reqs and ssl_check_hostname out of {key}; ssl_ca_certs=/path/to/ca"
    return "is not verified: who answers may be another", f"{fix}.pem names its authority"
