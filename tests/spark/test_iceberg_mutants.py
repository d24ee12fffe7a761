"""What Iceberg tables promise by code of ours, broken on purpose: each time a check must notice.

The parity suite's mutants, of the code that merges of any format are made of, are run on Iceberg
tables by `python -m tests.spark.parity_mutants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.parts import History
from tests.spark import test_iceberg_columns as columns
from tests.spark import test_iceberg_races as races
from tests.spark.test_iceberg_races import history as history
from tideline.contract.plan import CommitMetadata
from tideline.warehouse.iceberg.metadata import IcebergMetadata
from tideline.warehouse.iceberg.schema_changes import Schemas
from tideline_spark.formats.iceberg import table
from tideline_spark.formats.iceberg.access import IcebergAccess
from tideline_spark.formats.iceberg.publishing import Publication, conflict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMMITTING = IcebergAccess.committing


@contextmanager
def _number_later(
    access: IcebergAccess,
    before: IcebergMetadata,
    commit_metadata: CommitMetadata,
    numbers: Mapping[str, int],
) -> Iterator[None]:
    """Rows first, and then the number."""
    with _COMMITTING(access, before, commit_metadata, {}):
        yield
    moved = access.load()
    with _COMMITTING(access, access.metadata_of(moved), commit_metadata, numbers):
        nothing = f"DELETE FROM {access.name} WHERE `id` = `id` + 1"  # noqa: S608
        access.session.sql(nothing).collect()


def _published_anyhow(publication: Publication) -> int | None:
    """Whatever the table has become since the statement read it."""
    loaded = publication._access.load()
    staged = publication._staged(publication._access.metadata_of(loaded))
    if staged is None:
        return None
    publication._set(loaded, staged)
    return staged.id


def _unchecked(access: IcebergAccess, now: IcebergMetadata) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Mutant:
    """``where.attribute`` is ``instead``; ``check`` must notice."""

    where: object
    attribute: str
    instead: Any
    check: Callable[..., None]


def _always(*given: Any) -> bool:
    return True


def _never(*given: Any) -> bool:
    return False


MUTANTS = {
    "the number is in another commit than the rows": Mutant(
        IcebergAccess, "committing", _number_later, races.test_rows_and_number_move_in_one_step
    ),
    "a race is not refused": Mutant(
        IcebergMetadata,
        "only_others_since",
        _always,
        races.test_a_run_that_a_longer_plan_overtakes_brings_nothing_back,
    ),
    "a race with others is not refused": Mutant(
        Publication,
        "publish",
        _published_anyhow,
        races.test_rows_of_others_that_come_before_a_run_is_published_stay,
    ),
    "a replay is applied again": Mutant(
        table, "_has_applied", _never, races.test_a_replay_changes_nothing
    ),
    "columns are made without a look": Mutant(
        IcebergAccess,
        "check_columns",
        _unchecked,
        races.test_a_shorter_plan_does_not_drop_the_columns_of_a_longer_one,
    ),
    "columns of others are not compared": Mutant(
        Schemas,
        "change",
        lambda *given: None,
        columns.test_a_merge_names_it_once_and_every_later_state_remembers,
    ),
    "a run has judged what it has not seen": Mutant(
        Schemas,
        "know",
        _always,
        columns.test_a_change_after_the_last_look_is_found_after_the_commit,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutant = MUTANTS[name]
    monkeypatch.setattr(mutant.where, mutant.attribute, mutant.instead)
    given: dict[str, Any] = {"history": history, "spark": spark, "monkeypatch": monkeypatch}
    wanted = mutant.check.__code__.co_varnames[: mutant.check.__code__.co_argcount]
    with pytest.raises(AssertionError):
        mutant.check(**{one: given[one] for one in wanted})


def test_the_refusal_of_a_race_is_a_conflict() -> None:
    from tideline_spark.failures import is_conflict

    assert is_conflict(conflict("why"))
