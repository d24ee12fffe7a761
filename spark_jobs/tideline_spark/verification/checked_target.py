"""Checks that the target version named by a verification plan exists, and returns its mode."""

from __future__ import annotations

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.modes import Mode
from tideline.contract.plan import build_of, newest_generation
from tideline.contract.verification import TableComparison
from tideline_spark.formats.base import Target


def modes_of(target: Target, comparison: TableComparison) -> tuple[Mode, TargetColumns]:
    """Return the target's mode and columns. Raises when its version is not the plan's."""
    snapshot = target.snapshot()
    if not snapshot.exists or snapshot.version < comparison.target_version:
        raise Unavailable(
            f"the target of {comparison.table} has no version {comparison.target_version}",
            hint="it was removed or recreated: merge, then verify again",
        )
    generation = newest_generation([comparison.app_id], comparison.app_id)
    newer = newest_generation(snapshot.applied, comparison.app_id, snapshot.build) > generation
    if newer or snapshot.build != build_of(comparison.app_id):
        # Mode and columns are known for the newest version only.
        raise Unavailable(
            f"the target of {comparison.table} was recreated since version"
            f" {comparison.target_version}",
            hint="verify again",
        )
    for commit in target.commits(comparison.target_version):
        number = commit.numbers.get(comparison.app_id)
        if number is not None:
            if number != comparison.number:
                raise Unavailable(
                    f"version {comparison.target_version} of {comparison.table} has applied"
                    f" manifest {number} instead of {comparison.number}",
                    hint="it was recreated: verify again",
                )
            break
        if (
            commit.commit_metadata is not None
            and commit.commit_metadata.app_id == comparison.app_id
        ):
            raise Unavailable(
                f"a merge of {comparison.table} is under way, or was killed",
                hint="merge again, then verify again",
            )
    if snapshot.mode is Mode.APPEND:
        raise Misconfigured(
            f"{comparison.table} is kept as a log of changes, which has no rows to compare",
            hint="verify a table that is kept as it is now: `tideline rebuild` switches",
        )
    return snapshot.mode, TargetColumns.parse(snapshot.properties.get(COLUMNS_PROPERTY))
