"""What a source's owner is told and asked before, and after, it is captured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tideline.contract.schema import TableId, TableSchema


@dataclass(frozen=True, slots=True)
class AssessedTable:
    """A table that the settings' patterns name, as capture will take it.

    ``schema`` is what its parts will have; None where nothing of it is captured, for ``problem``,
    which ``hint`` cures (None: nothing does). ``rows`` and ``bytes`` are the server's own
    estimates; None where it has none. ``left_out``: columns that its log does not hold.
    """

    table: TableId
    schema: TableSchema | None
    problem: str | None = None
    hint: str | None = None
    rows: int | None = None
    bytes: int | None = None
    left_out: tuple[str, ...] = ()


class Administration(Protocol):
    """One database, as those who set a pipeline up and take it down see it. Making one asks the
    server nothing."""

    def setup_sql(self) -> str:
        """The statements that an owner runs once; no password in them, and no connection is needed.
        Raises Misconfigured for settings that name no user."""

    def assess(self) -> Sequence[AssessedTable]:
        """Every table that the patterns name, in the order of their names. Reads the catalog and
        changes nothing. Raises Unavailable and Misconfigured, as connecting does."""
