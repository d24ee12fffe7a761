"""Results of the checks that run before capture does, and checks that all sources share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tideline.contract.clocks import apart

Level = Literal["ok", "warning", "error"]

START_OVER = "start a new pipeline under another name, which dumps every table (docs/RESTORE.md)"
"""The fix for a log that lacks what the chain goes on from."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``fix`` is the statement or setting that makes it go away; None when none does.

    An ``error`` keeps capture from starting; a ``warning`` does not, though single tables may be
    left out because of it. ``name`` is the check's, the same in every run.
    """

    name: str
    level: Level
    message: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class SecuredSession:
    """The security of a connection to a source: ``here``, it does not leave this machine;
    ``encrypted``; ``verified``, the server has proven its identity."""

    here: bool
    encrypted: bool
    verified: bool


def check_session(session: SecuredSession, *, mode: str, verifies: str) -> Iterator[Finding]:
    """Yield a warning for a session with another machine that others could read or impersonate.
    ``mode`` is the name of the url's key, ``verifies`` the value of it that verifies."""
    if session.here or (session.encrypted and session.verified):
        return
    fix = f"take {mode} out of source.url, or set it to {verifies}"
    if not session.encrypted:
        yield warning("encryption", "the connection to the source is not encrypted", fix)
        return
    text = "the source has not proven who it is: another could read along, or stand in for it"
    yield warning("encryption", text, fix)


def check_clocks(source_us: int) -> Finding:
    """Return a finding about the source's clock (µs UTC) compared with this machine's."""
    words = apart(source_us, time.time_ns() // 1000)
    if words is None:
        return ok("clocks", "the source's clock and this machine's agree")
    fix = "keep both by NTP: of freshness no more is claimed than both clocks allow"
    return warning("clocks", words, fix)


def nothing_chosen(exist: str | None = None, fix: str | None = None) -> Finding:
    """Return the message for patterns that match no table, before capture starts and while it runs.

    That is no reason not to start: tables come later, and are taken up then. ``exist``: which
    tables there are, in words; ``fix``: what chooses them.
    """
    others = "" if exist is None else f"; {exist}"
    text = f"source.tables matches no table: capture waits for tables that come{others}"
    return warning("tables", text, fix)


def how_many(captured: int, chosen: int) -> Finding:
    """Return the message about the ``chosen`` tables together, of which ``captured`` can be
    captured."""
    if captured:
        return ok("tables", f"{captured} tables can be captured")
    text = f"none of the {chosen} matching tables can be captured: all are left out"
    return warning("tables", text)


def ok(name: str, message: str) -> Finding:
    return Finding(name, "ok", message)


def warning(name: str, message: str, fix: str | None = None) -> Finding:
    return Finding(name, "warning", message, fix)


def error(name: str, message: str, fix: str | None = None) -> Finding:
    return Finding(name, "error", message, fix)
