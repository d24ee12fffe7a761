"""What a warehouse table's own log says of it, read through deltalake: no JVM, milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tideline.contract.description import DESCRIPTION_PROPERTY
from tideline.contract.errors import Unavailable
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.modes import Mode
from tideline.contract.plan import Stamp, of_build
from tideline.contract.unproven import UNPROVEN_PROPERTY, Unproven

VECTORS_PROPERTY = "delta.enableDeletionVectors"
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
        "DROP FEATURE",
        "Deletion Vector Tombstones",
        "Empty Commit",
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
    ``foreign`` names what others have committed that it did not know of, and that may have changed
    values; ``unproven`` what they did before, and nothing has healed.
    ``version`` is the newest one, which all this is said of. ``columns_seq``: the steps of schema
    changes up to it are taken. ``mode`` is how the table is kept, ``build`` which rebuild made it.
    ``deletion_vectors``: whether a reader has to know them. ``described``: what its
    `DESCRIPTION_PROPERTY` says.
    """

    url: str
    exists: bool = False
    owner: tuple[str, str, str] = ("", "", "")
    applied: int | None = None
    stamp: Stamp | None = None
    went_back: bool = False
    foreign: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    version: int = -1
    columns_seq: int = 0
    mode: Mode = Mode.CURRENT
    build: int = 0
    deletion_vectors: bool = True
    described: str | None = None


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
        unproven=_unproven(stamp, found.get(UNPROVEN_PROPERTY)),
        version=table.version(),
        columns_seq=TargetColumns.parse(found.get(COLUMNS_PROPERTY)).seq,
        mode=Mode(found.get("tideline.mode") or Mode.CURRENT),
        build=build,
        deletion_vectors=_has_vectors(table, found),
        described=found.get(DESCRIPTION_PROPERTY),
    )


def _has_vectors(table: DeltaTable, properties: Mapping[str, str]) -> bool:
    """Whether the table may have deletion vectors, or says that its readers must know them."""
    features = table.protocol().reader_features or ()
    return "deletionVectors" in features or properties.get(VECTORS_PROPERTY) == "true"


def _last_of_ours(table: DeltaTable, app: str) -> _Since:
    """Our newest commit's stamp, whether a RESTORE that it did not know of went behind it, and what
    else others did (newest first; not told where the log has no commit of ours).

    A commit knows what came up to the version that its run had looked at.
    """
    restored: list[int | None] = []
    for limit in (1, COMMITS_MAX):
        restored, foreign = [], list[str]()
        stamp, ours, judged = None, -1, -1
        commits = table.history(limit)
        for commit in commits:
            version = int(commit["version"])
            if stamp is not None and version <= judged:
                break
            found = Stamp.parse(commit.get("userMetadata"))
            if found is not None and found.app_id == app:
                if stamp is None:
                    stamp, ours = found, version
                    judged = version - 1 if found.looked_at is None else found.looked_at
                continue
            operation = str(commit.get("operation", "unknown"))
            if operation == "RESTORE":
                restored.append(_restored_to(commit.get("operationParameters") or {}))
            if operation not in HARMLESS:
                foreign.append(f"version {commit['version']}: {operation}")
        if stamp is not None and (limit > 1 or judged >= ours - 1):
            return stamp, any(to is None or to < ours for to in restored), tuple(foreign)
    return None, bool(restored), ()


def _unproven(stamp: Stamp | None, noted: str | None) -> tuple[str, ...]:
    """As our last commit says, or the table's property where the log has lost that."""
    return Unproven.parse(noted).changes if stamp is None else stamp.unproven


def _restored_to(parameters: Mapping[str, Any]) -> int | None:
    version = str(parameters.get("version"))
    return int(version) if version.isdecimal() else None
