"""What the statements for BigQuery promise, broken on purpose: the random histories notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.integration import test_bigquery_semantics as semantics
from tests.integration.test_bigquery_semantics import SEEDS
from tests.integration.test_bigquery_semantics import duckdb as duckdb
from tests.support.bigquery.duckdb_child import DuckDb, DuckDbFailed
from tideline.contract.plan import TablePlan
from tideline_spark import statement
from tideline_spark.formats.statements import RowMerge, of_source, of_target
from tideline_spark.modes import history, soft_deletes
from tideline_spark.modes.versioned import same_rows

_MERGE, _SOFT, _SAME = statement.merge_rows, soft_deletes._ended, same_rows


def _no_floor(plan: TablePlan, view: str, fillable: Any) -> RowMerge:
    return replace(_MERGE(plan, view, fillable), unmatched=None)


def _gone_inserted(plan: TablePlan, view: str, fillable: Any) -> RowMerge:
    rows = _MERGE(plan, view, fillable)
    assert rows.inserted is not None
    return replace(rows, inserted=replace(rows.inserted, when=None))


def _shielding(plan: TablePlan, view: str, fillable: Any) -> RowMerge:
    """A damaged sequence counts as a sequence."""
    rows, newer = _MERGE(plan, view, fillable), f"{of_source('_tl_seq')} > {of_target('_tl_seq')}"
    gone, changed = rows.matched
    return replace(
        rows, matched=(replace(gone, when=f"{newer} AND {of_source('_tl_gone')}"),
                       replace(changed, when=newer)),
    )  # fmt: skip


def _one_too_few(plan: TablePlan, prefix: str = "") -> list[str]:
    return [] if plan.key_min is None else [f"{prefix}`id` > {plan.key_min}"]


def _ended_again(plan: TablePlan) -> Any:
    ended = _SOFT(plan)
    assert ended.when is not None
    live = f"NOT coalesce({of_target(soft_deletes.DELETED)}, false)"
    return replace(ended, when=ended.when.replace(live, "true"))


def _null_list(*given: object) -> str:
    return "cast(NULL as array<string>)"


def _nothing(*given: object) -> None:
    return None


def _by_key(plan: TablePlan, names: object) -> str:
    return _SAME(plan, plan.schema.key)


@dataclass(frozen=True, slots=True)
class Mutant:
    """``where.attribute`` is ``instead``; ``check`` must notice, with one of the seeds."""

    where: object
    attribute: str
    instead: Any
    check: Callable[[DuckDb, int], None]


_CURRENT = semantics.test_current_rows_are_the_sources
_DELETED = semantics.test_deleted_rows_keep_their_last_values
_VERSIONS = semantics.test_every_version_is_kept_and_closed_once
MUTANTS = {
    "the floor is ignored": Mutant(semantics, "merge_rows", _no_floor, _CURRENT),
    "deleted rows are inserted": Mutant(semantics, "merge_rows", _gone_inserted, _CURRENT),
    "a damaged row shields itself": Mutant(semantics, "merge_rows", _shielding, _CURRENT),
    "the bounds leave out a key": Mutant(statement, "key_bounds", _one_too_few, _CURRENT),
    "what a change lacks is emptied": Mutant(
        statement, "_updated", lambda name, fillable: of_source(name), _CURRENT
    ),
    "what a change lacks loses its text": Mutant(
        statement, "_overflow", lambda fillable: of_source("_tl_overflow"), _CURRENT
    ),
    "what is lacking is forgotten": Mutant(statement, "_still_pending", _null_list, _CURRENT),
    "what a new row lacks is not named": Mutant(statement, "_newly_pending", _null_list, _CURRENT),
    "a truncate deletes nothing": Mutant(soft_deletes, "_ended", _nothing, _DELETED),
    "a truncate deletes deleted rows": Mutant(soft_deletes, "_ended", _ended_again, _DELETED),
    "a truncate closes nothing": Mutant(history, "_ended", _nothing, _VERSIONS),
    "versions are found by their key": Mutant(history, "same_rows", _by_key, _VERSIONS),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(duckdb: DuckDb, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mutant = MUTANTS[name]
    monkeypatch.setattr(mutant.where, mutant.attribute, mutant.instead)
    with pytest.raises((AssertionError, DuckDbFailed)):
        for seed in SEEDS:
            mutant.check(duckdb, seed)
