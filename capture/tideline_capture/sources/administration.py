"""Administration of a source: setup statements, assessment of tables, and removal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tideline.contract.schema import TableId, TableSchema


@dataclass(frozen=True, slots=True)
class AssessedTable:
    """A table that the settings' patterns name, as capture will take it.

    ``schema`` is the one that its parts will have; None where nothing of it is captured, because of
    ``problem``, which ``hint`` cures (None: nothing does). ``rows`` and ``bytes`` are the server's
    own estimates; None where it has none. ``left_out``: columns that its log does not hold.
    """

    table: TableId
    schema: TableSchema | None
    problem: str | None = None
    hint: str | None = None
    rows: int | None = None
    bytes: int | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Removal:
    """Something that a pipeline left behind at the source.

    ``name`` is the step's, the same in every run; ``what`` describes what is there. ``remove``
    takes it away, and does nothing where it is already gone. It raises Unavailable, or
    Misconfigured with the statement for an administrator in the hint.
    """

    name: str
    what: str
    remove: Callable[[], None]


class Administration(Protocol):
    """One database, as seen by those who set a pipeline up and take it down. Creating one asks the
    server nothing."""

    def setup_sql(self) -> str:
        """Return the statements that an owner runs once; they hold no password and need no
        connection. Raises Misconfigured for settings that name no user."""

    def assess(self) -> Sequence[AssessedTable]:
        """Return every table that the patterns name, in the order of their names. Reads the catalog
        and changes nothing. Raises Unavailable and Misconfigured, as connecting does."""

    def removals(self, incarnation: str | None) -> Sequence[Removal]:
        """Return what the pipeline made at the source and is still there, in the order of removal.

        ``incarnation`` is that of its chain, None when there is none (any more): what can be
        identified only by it is left out then. Raises as `assess` does, and Misconfigured for
        something that is in use, or another's.
        """
