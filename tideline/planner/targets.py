"""What a warehouse table's own log says of it, read through deltalake: no JVM, milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tideline.contract.errors import Unavailable
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.modes import Mode
from tideline.contract.plan import Stamp, of_build

COMMITS_MAX = 1_000
"""Commits of others that are looked through for our last one."""
HARMLESS = frozenset(
    {
        "ADD COLUMNS",
        "ADD CONSTRAINT",
        "ALTER COLUMN",
        "CHANGE COLUMN",
        "CHANGE COLUMNS",
        "CLUSTER BY",
        "DROP CONSTRAINT",
        "OPTIMIZE",
        "REORG",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations that leave every value as it was."""

_Since = tuple[Stamp | None, bool, tuple[str, ...]]
_NOTHING: _Since = (None, False, ())


@dataclass(frozen=True, slots=True)
class Target:
    """A table at ``url``; nothing is there when ``exists`` is False.

    ``applied`` is the transaction version under the app id asked for, ``stamp`` what our last
    commit says. ``went_back``: a RESTORE set the content back behind that commit, which Delta's
    transaction versions do not follow. ``owner`` names the history that the table belongs to.
    ``foreign`` names what others have committed since, that may have changed values.
    ``version`` is the newest one, which all this is said of. ``columns_seq``: the steps of schema
    changes up to it are taken. ``mode`` is how the table is kept, ``build`` which rebuild made it.
    """

    url: str
    exists: bool = False
    owner: tuple[str, str, str] = ("", "", "")
    applied: int | None = None
    stamp: Stamp | None = None
    went_back: bool = False
    foreign: tuple[str, ...] = ()
    version: int = -1
    columns_seq: int = 0
    mode: Mode = Mode.CURRENT
    build: int = 0


def read_target(url: str, app: str) -> Target:
    """The table at ``url`` as it is now, for the app id ``app`` of its generation, or of the
    rebuild that made it.

    Raises Unavailable when something is there that cannot be read.
    """
    parts = urlsplit(url)
    address = unquote(parts.path) if parts.scheme == "file" else url
    try:
        table = DeltaTable(address)
        found = table.metadata().configuration
        build = int(found.get("tideline.build") or 0)
        app = of_build(app, build)
        applied = table.transaction_version(app)
        stamp, went_back, foreign = _NOTHING if applied is None else _last_of_ours(table, app)
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
        foreign=foreign,
        version=table.version(),
        columns_seq=TargetColumns.parse(found.get(COLUMNS_PROPERTY)).seq,
        mode=Mode(found.get("tideline.mode") or Mode.CURRENT),
        build=build,
    )


def _last_of_ours(table: DeltaTable, app: str) -> _Since:
    """Our newest commit's stamp, whether a RESTORE since went behind it, and what else others did
    since (newest first; not told where the log has no commit of ours)."""
    restored: list[int | None] = []
    for limit in (1, COMMITS_MAX):
        restored, foreign = [], list[str]()
        for commit in table.history(limit):
            stamp = Stamp.parse(commit.get("userMetadata"))
            if stamp is not None and stamp.app_id == app:
                ours = int(commit["version"])
                return stamp, any(to is None or to < ours for to in restored), tuple(foreign)
            operation = str(commit.get("operation", "unknown"))
            if operation == "RESTORE":
                restored.append(_restored_to(commit.get("operationParameters") or {}))
            if operation not in HARMLESS:
                foreign.append(f"version {commit['version']}: {operation}")
    return None, bool(restored), ()


def _restored_to(parameters: Mapping[str, Any]) -> int | None:
    version = str(parameters.get("version"))
    return int(version) if version.isdecimal() else None
