"""What BigQuery's target promises by code of ours, broken on purpose: each time a check must
notice. Those of the statements are in `test_bigquery_statement_mutants`, of merges in
`tests.spark.parity_mutants`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration import test_bigquery_commits as commits
from tests.integration.test_bigquery_commits import Table
from tests.integration.test_bigquery_commits import table as table
from tideline.contract.errors import TidelineError
from tideline.warehouse.bigquery.log import read_log
from tideline_spark.formats.bigquery import access
from tideline_spark.formats.bigquery.access import BigQueryAccess
from tideline_spark.formats.bigquery.jobs import Jobs, TargetOvertaken, job_name

_COMMIT, _NAME = BigQueryAccess.commit, job_name


def _in_two(self: BigQueryAccess, log: Any, statements: Any, entry: Any, doing: str) -> Any:
    """Rows first, and then the number."""
    for sql in statements:
        self.client.query(sql).result()
    return _COMMIT(self, log, [], entry, doing)


def _unsettled(self: BigQueryAccess) -> Any:
    return read_log(self.client, self.name)


def _any_name(*parts: object) -> str:
    return f"tideline-{secrets.token_hex(20)}"


def _same_name(*parts: object) -> str:
    """The name of a declaration is what it does, and nothing else."""
    return _NAME(*parts[:5])


def _unguarded(self: BigQueryAccess, guard: str) -> str:
    return "SELECT 1"


def _unseen(*given: object) -> None:
    return None


def _always_ours(self: Jobs, job_id: str, begin: Callable[[str], Any]) -> tuple[Any, bool]:
    return _BEGUN(self, job_id, begin)[0], True


_BEGUN = Jobs._begun
_NOTICED = (AssertionError, TidelineError, TargetOvertaken, pytest.fail.Exception)
"""How a check ends that fails: the last where what it waits for is not raised."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``where.attribute`` is ``instead``; ``check`` must notice."""

    where: object
    attribute: str
    instead: Any
    check: Callable[..., None]
    given: dict[str, Any]


MUTANTS = {
    "the number is not in the transaction": Mutant(
        BigQueryAccess,
        "commit",
        _in_two,
        commits.test_a_commit_that_dies_is_whole_or_nothing,
        {"when": "after"},
    ),
    "a job's id is drawn": Mutant(
        access,
        "job_name",
        _any_name,
        commits.test_a_commit_whose_client_was_killed_is_waited_for,
        {},
    ),
    "the script does not look at the log": Mutant(
        BigQueryAccess,
        "_check",
        _unguarded,
        commits.test_a_run_that_others_overtake_behind_its_last_look_is_refused,
        {},
    ),
    "nothing looks for changes by others": Mutant(
        BigQueryAccess,
        "_check_unchanged",
        _unseen,
        commits.test_a_change_by_others_since_the_look_is_not_written_over,
        {},
    ),
    "what is pending stays so": Mutant(
        BigQueryAccess,
        "read",
        _unsettled,
        commits.test_a_run_that_dies_is_completed_by_the_next,
        {"at": 0, "when": "after"},
    ),
    "a declaration has the name of one that failed": Mutant(
        access,
        "job_name",
        _same_name,
        commits.test_columns_that_could_not_be_changed_are_changed_another_time,
        {},
    ),
    "an earlier job's failure is this one's": Mutant(
        Jobs, "_begun", _always_ours, commits.test_a_commit_that_failed_is_made_by_another_run, {}
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(table: Table, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mutant = MUTANTS[name]
    monkeypatch.setattr(mutant.where, mutant.attribute, mutant.instead)
    given = {"table": table, "monkeypatch": monkeypatch, **mutant.given}
    wanted = mutant.check.__code__.co_varnames[: mutant.check.__code__.co_argcount]
    with pytest.raises(_NOTICED):
        mutant.check(**{one: given[one] for one in wanted})
