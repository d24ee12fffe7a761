"""Reads the state of a warehouse table: its owner, what it has applied, its external commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tideline.contract.description import DESCRIPTION_PROPERTY
from tideline.contract.errors import CorruptData
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.external_commits import (
    UNHEALED_PROPERTY,
    SinceOurs,
    TableCommit,
    UnhealedCommits,
    since_ours,
)
from tideline.contract.modes import Mode
from tideline.contract.moves import FORMER_PROPERTY, MOVED_PROPERTY, MOVING_PROPERTY
from tideline.contract.plan import (
    STANDING_PROPERTY,
    CommitMetadata,
    build_of,
    newest_generation,
    of_build,
)
from tideline.contract.table_layout import NO_LAYOUT, TableLayout
from tideline.contract.target_properties import (
    Owner,
    build_of_properties,
    mode_of_properties,
    owner_of,
)
from tideline.settings import Warehouse
from tideline.warehouse.base import TableReader, unreadable
from tideline.warehouse.registry import open_reader


@dataclass(frozen=True, slots=True)
class TargetState:
    """A table at ``url``; nothing is there when ``exists`` is False.

    ``applied`` is the manifest applied under the app id asked for, ``commit_metadata`` the record
    of our last commit. ``went_back``: a restore set the content back behind that commit, which
    applied numbers do not follow. ``owner`` names the history that the table belongs to.
    ``external`` names the external commits that it did not know of; ``unhealed`` earlier ones that
    nothing has healed. ``version`` is the newest one, to which all this applies. ``columns_seq``:
    the steps of schema changes up to it are taken. ``mode`` is how the table is kept, ``build`` the
    rebuild that made it. ``deletion_vectors``: whether a reader has to know them. ``layout``: how
    its files are laid out; ``features``: those that its readers have to know; ``clustered``: it is
    clustered, or was. ``described``: its `DESCRIPTION_PROPERTY`. ``newer``: the newest generation
    of the table, above the one that was asked for, that any of these commits is of. ``standing``:
    ``commit_metadata``, or an earlier one that the table's properties repeat, where the log has
    lost our last commit. ``moving``, ``moved_to`` and ``former``: what it says of moves
    (`tideline.contract.moves`), each "" where it says nothing; ``pointed_to``: it is ``moving``,
    and the table that it was copied from says that it has taken over.
    """

    url: str
    exists: bool = False
    owner: Owner = ("", "", "")
    applied: int | None = None
    commit_metadata: CommitMetadata | None = None
    went_back: bool = False
    external: tuple[str, ...] = ()
    unhealed: tuple[str, ...] = ()
    version: int = -1
    columns_seq: int = 0
    mode: Mode = Mode.CURRENT
    build: int = 0
    deletion_vectors: bool = True
    layout: TableLayout = NO_LAYOUT
    features: frozenset[str] = frozenset()
    clustered: bool = False
    described: str | None = None
    newer: int | None = None
    standing: CommitMetadata | None = None
    moving: str = ""
    moved_to: str = ""
    former: str = ""
    pointed_to: bool = False

    @property
    def in_use(self) -> bool:
        """Return whether it is the target, as far as the table itself shows, and one that points
        to it."""
        return self.pointed_to or not (self.moving or self.moved_to)


def read_target(url: str, app: str, place: Warehouse) -> TargetState:
    """Read the table at ``url`` in the warehouse ``place`` as it is now, for the app id ``app`` of
    its generation, or of the rebuild that made it.

    Raises Unavailable when something is there that cannot be read.
    """
    table = open_reader(url, place)
    if table is None:
        return TargetState(url)
    try:
        return _state(url, table, app)
    except (ValueError, CorruptData) as error:
        raise unreadable(url, error) from None


def _state(url: str, table: TableReader, app: str) -> TargetState:
    found = table.properties
    build = build_of_properties(found)
    now = of_build(app, build)
    applied = table.applied(now)
    since, newer = _looked_through(table, now, applied) if app else (SinceOurs(), None)
    return TargetState(
        url=url,
        exists=True,
        owner=owner_of(found),
        applied=applied,
        commit_metadata=since.commit_metadata,
        went_back=since.went_back,
        external=since.external,
        unhealed=_unhealed(since.commit_metadata, found.get(UNHEALED_PROPERTY)),
        version=table.version,
        columns_seq=TargetColumns.parse(found.get(COLUMNS_PROPERTY)).seq,
        mode=mode_of_properties(found),
        build=build,
        deletion_vectors=table.readers_need_vectors,
        layout=TableLayout.of_properties(found),
        features=table.reader_features,
        clustered=table.once_clustered,
        described=found.get(DESCRIPTION_PROPERTY),
        newer=newer,
        standing=since.commit_metadata or _remembered(found.get(STANDING_PROPERTY), now),
        moving=found.get(MOVING_PROPERTY) or "",
        moved_to=found.get(MOVED_PROPERTY) or "",
        former=found.get(FORMER_PROPERTY) or "",
    )


def _looked_through(
    table: TableReader, app: str, applied: int | None
) -> tuple[SinceOurs, int | None]:
    """Return the external commits since our last commit, and the newest generation above the one of
    ``app`` that any commit since is of. Where nothing is ``applied`` there is no commit of ours."""
    newest = newest_generation([app], app)

    def read() -> Iterator[TableCommit]:
        nonlocal newest
        for commit in table.commits():
            generation = newest_generation(commit.numbers, app, build_of(app))
            newest = max(newest, generation)
            if applied is not None or generation < 0:
                yield commit
            else:
                return

    since = since_ours(read(), app)
    newer = newest if newest > newest_generation([app], app) else None
    return (SinceOurs() if applied is None else since), newer


def _remembered(text: str | None, app: str) -> CommitMetadata | None:
    commit_metadata = CommitMetadata.parse(text)
    return (
        commit_metadata if commit_metadata is not None and commit_metadata.app_id == app else None
    )


def _unhealed(commit_metadata: CommitMetadata | None, noted: str | None) -> tuple[str, ...]:
    """Return the unhealed commits of our last commit, or of the table's property where the log has
    lost that."""
    return (
        UnhealedCommits.parse(noted).changes
        if commit_metadata is None
        else commit_metadata.unhealed
    )
