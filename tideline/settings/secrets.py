"""Passwords: given in a setting, or in a file that holds only one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from pydantic import SecretStr

from tideline.contract.errors import Misconfigured


def secret_of(given: SecretStr | None, file: Path | None, *, key: str) -> str | None:
    """Return the secret of setting ``key``: the ``given`` one, else the content of ``file`` without
    the white space around it; None without either.

    Raises Misconfigured for a file that cannot be read or is empty. It is read with each call.
    """
    variable = f"TIDELINE_{key.replace('.', '__').upper()}"
    if given is not None:
        return _as_text(given.get_secret_value(), key, variable)
    if file is None:
        return None
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Misconfigured(
            f"{key}_file cannot be read: {reason}",
            hint=f"make the file readable for this user, or set {variable}",
        ) from None
    if not secret:
        raise Misconfigured(f"{key}_file is empty", hint=f"write it, or set {variable}")
    return secret


def _as_text(secret: str, key: str, variable: str) -> str:
    """Return ``secret``; Misconfigured when it is not UTF-8, as bytes of the environment may not
    be."""
    try:
        secret.encode()
    except UnicodeEncodeError:
        raise Misconfigured(f"{key} is not UTF-8", hint=f"write {variable} as UTF-8") from None
    return secret


def with_password(url: str, password: str | None) -> str:
    """Put ``password`` into ``url``, in place of its own; without one the url is unchanged."""
    if password is None:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = quote(unquote(parts.username or ""), safe="")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()


def known(ask: Callable[[], str | None]) -> list[str]:
    """Return what ``ask`` returns, or nothing where this process may not read a file with a
    secret."""
    try:
        found = ask()
    except Misconfigured:
        return []
    return [] if found is None else [found]


def hidden(*urls: str) -> list[str]:
    """Return the secret texts of ``urls``: each as a whole, and the password in it."""
    passwords = [unquote(one) for url in urls if (one := urlsplit(url).password)]
    return [*urls, *passwords]
