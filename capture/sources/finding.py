"""One result of a check that runs before capture does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``fix`` is the statement or setting that makes the finding go away; None when none does.

    An ``error`` keeps capture from starting; a ``warning`` does not, though single tables may be
    left out because of it. ``name`` is the check's, the same in every run.
    """

    name: str
    level: Level
    message: str
    fix: str | None = None


def ok(name: str, message: str) -> Finding:
    return Finding(name, "ok", message)


def warning(name: str, message: str, fix: str | None = None) -> Finding:
    return Finding(name, "warning", message, fix)


def error(name: str, message: str, fix: str | None = None) -> Finding:
    return Finding(name, "error", message, fix)
