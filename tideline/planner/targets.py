"""What a warehouse table's own log says of it, read through deltalake: no JVM, milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake._internal import DeltaFileSystemHandler
from deltalake.exceptions import DeltaError, TableNotFoundError

from tideline.contract.delta_log import Commit, SinceOurs, parse_commit, since_ours
from tideline.contract.description import DESCRIPTION_PROPERTY
from tideline.contract.errors import CorruptData, Unavailable
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.modes import Mode
from tideline.contract.plan import STANDING_PROPERTY, Stamp, build_of, newest_generation, of_build
from tideline.contract.unproven import UNPROVEN_PROPERTY, Unproven

VECTORS_PROPERTY = "delta.enableDeletionVectors"
COMMITS_MAX = 1_000
"""Commits of others that are looked through for our last one."""


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
    `DESCRIPTION_PROPERTY` says. ``newer``: the newest generation of the table, above the one that
    was asked for, that any of these commits is of. ``standing``: the stamp, or what the table's
    properties repeat of an earlier one, where the log has lost our last commit.
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
    newer: int | None = None
    standing: Stamp | None = None


def open_table(url: str) -> DeltaTable:
    """The table at ``url``. Raises what deltalake raises."""
    parts = urlsplit(url)
    return DeltaTable(unquote(parts.path) if parts.scheme == "file" else url)


def commits_of(table: DeltaTable, most: int = COMMITS_MAX) -> Iterator[Commit]:
    """The table's commits from its newest one back, ``most`` of them, as far as its log has their
    files. Raises what deltalake raises, and CorruptData for a torn file."""
    newest = table.version()
    for version in range(newest, max(-1, newest - most), -1):
        raw = raw_commit(table, version)
        if raw is None:
            return
        yield parse_commit(version, raw)


def raw_commit(table: DeltaTable, version: int) -> bytes | None:
    """The file of one commit; None where the log has it no longer, or not yet."""
    files = DeltaFileSystemHandler.from_table(table._table)
    try:
        file = files.open_input_file(f"_delta_log/{version:020d}.json")
    except FileNotFoundError:
        return None
    return bytes(file.read(file.size()))


def read_target(url: str, app: str) -> Target:
    """The table at ``url`` as it is now, for the app id ``app`` of its generation, or of the
    rebuild that made it.

    Raises Unavailable when something is there that cannot be read.
    """
    try:
        table = open_table(url)
        found = table.metadata().configuration
        build = int(found.get("tideline.build") or 0)
        now = of_build(app, build)
        applied = table.transaction_version(now)
        since, newer = _looked_through(table, now, applied) if app else (SinceOurs(), None)
    except TableNotFoundError:
        return Target(url)
    except (DeltaError, OSError, ValueError, CorruptData) as error:
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
        stamp=since.stamp,
        went_back=since.went_back,
        foreign=since.foreign,
        unproven=_unproven(since.stamp, found.get(UNPROVEN_PROPERTY)),
        version=table.version(),
        columns_seq=TargetColumns.parse(found.get(COLUMNS_PROPERTY)).seq,
        mode=Mode(found.get("tideline.mode") or Mode.CURRENT),
        build=build,
        deletion_vectors=_has_vectors(table, found),
        described=found.get(DESCRIPTION_PROPERTY),
        newer=newer,
        standing=since.stamp or _remembered(found.get(STANDING_PROPERTY), now),
    )


def _has_vectors(table: DeltaTable, properties: Mapping[str, str]) -> bool:
    """Whether the table may have deletion vectors, or says that its readers must know them."""
    features = table.protocol().reader_features or ()
    return "deletionVectors" in features or properties.get(VECTORS_PROPERTY) == "true"


def _looked_through(
    table: DeltaTable, app: str, applied: int | None
) -> tuple[SinceOurs, int | None]:
    """What others did since our last commit, and the newest generation above the one of ``app``
    that any commit since is of. Where nothing is ``applied`` there is no commit of ours."""
    newest = newest_generation([app], app)

    def read() -> Iterator[Commit]:
        nonlocal newest
        for commit in commits_of(table):
            generation = newest_generation(commit.numbers, app, build_of(app))
            newest = max(newest, generation)
            if applied is not None or generation < 0:
                yield commit
            else:
                return

    since = since_ours(read(), app)
    newer = newest if newest > newest_generation([app], app) else None
    return (SinceOurs() if applied is None else since), newer


def _remembered(text: str | None, app: str) -> Stamp | None:
    stamp = Stamp.parse(text)
    return stamp if stamp is not None and stamp.app_id == app else None


def _unproven(stamp: Stamp | None, noted: str | None) -> tuple[str, ...]:
    """As our last commit says, or the table's property where the log has lost that."""
    return Unproven.parse(noted).changes if stamp is None else stamp.unproven
