"""Administration of a source: setup statements, assessment of tables, and removal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Administration:
    """One database, as seen by those who set a pipeline up and take it down.

    ``setup_sql`` returns the statements that an owner runs once; they hold no password and need no
    connection. It raises Misconfigured for settings that name no user. ``assess`` returns every
    table that the patterns name, in the order of their names. It reads the catalog and changes
    nothing, and raises Unavailable and Misconfigured, as connecting does. ``removals`` returns what
    the pipeline made at the source and is still there, in the order of removal; its argument is the
    incarnation of the pipeline's chain, None when there is none (any more): what can be identified
    only by it is left out then. It raises as ``assess`` does, and Misconfigured for something that
    is in use, or another's. ``writes_watermarks``: the worker writes to the source, for each chunk
    and round.
    """

    setup_sql: Callable[[], str]
    assess: Callable[[], Sequence[AssessedTable]]
    removals: Callable[[str | None], Sequence[Removal]]
    writes_watermarks: bool = True
