"""What a warehouse table's own log says of it, read through deltalake: no JVM, milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tideline.contract.errors import Unavailable
from tideline.contract.plan import Stamp

COMMITS_MAX = 1_000
"""Commits of others that are looked through for our last one."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table at ``url``; nothing is there when ``exists`` is False.

    ``applied`` is the transaction version under the app id asked for, ``stamp`` what our last
    commit says. ``went_back``: a RESTORE set the content back behind that commit, which Delta's
    transaction versions do not follow. ``owner`` names the history that the table belongs to.
    """

    url: str
    exists: bool = False
    owner: tuple[str, str, str] = ("", "", "")
    applied: int | None = None
    stamp: Stamp | None = None
    went_back: bool = False


def read_target(url: str, app: str) -> Target:
    """The table at ``url`` as it is now, for the app id ``app``.

    Raises Unavailable when something is there that cannot be read.
    """
    parts = urlsplit(url)
    address = unquote(parts.path) if parts.scheme == "file" else url
    try:
        table = DeltaTable(address)
        applied = table.transaction_version(app)
        found = table.metadata().configuration
        stamp, went_back = (None, False) if applied is None else _last_of_ours(table, app)
    except TableNotFoundError:
        return Target(url)
    except (DeltaError, OSError) as error:
        raise Unavailable(
            f"the log of the table at {url} cannot be read: {type(error).__name__}",
            hint="check that the warehouse can be reached and that its _delta_log is complete",
        ) from None
    owner = tuple(
        found.get(f"tideline.{name}") or "" for name in ("pipeline", "incarnation", "table")
    )
    return Target(
        url=url,
        exists=True,
        owner=(owner[0], owner[1], owner[2]),
        applied=applied,
        stamp=stamp,
        went_back=went_back,
    )


def _last_of_ours(table: DeltaTable, app: str) -> tuple[Stamp | None, bool]:
    """Our newest commit's stamp, and whether a RESTORE since went behind it."""
    for limit in (1, COMMITS_MAX):
        restored: list[int | None] = []
        for commit in table.history(limit):
            stamp = Stamp.parse(commit.get("userMetadata"))
            if stamp is not None and stamp.app_id == app:
                ours = int(commit["version"])
                return stamp, any(to is None or to < ours for to in restored)
            if commit.get("operation") == "RESTORE":
                restored.append(_restored_to(commit.get("operationParameters") or {}))
    return None, bool(restored)


def _restored_to(parameters: Mapping[str, Any]) -> int | None:
    version = str(parameters.get("version"))
    return int(version) if version.isdecimal() else None
