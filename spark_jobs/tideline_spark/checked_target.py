"""Checks that the target version named by a verification plan exists, and returns its mode."""

from __future__ import annotations

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.modes import Mode
from tideline.contract.plan import build_of, newest_generation
from tideline.contract.verification import TableCheck
from tideline_spark.formats.base import Target


def modes_of(target: Target, check: TableCheck) -> tuple[Mode, TargetColumns]:
    """Return the target's mode and columns. Raises when its version is not the plan's."""
    snapshot = target.snapshot()
    if not snapshot.exists or snapshot.version < check.target_version:
        raise Unavailable(
            f"the target of {check.table} has no version {check.target_version}",
            hint="it was removed or recreated: merge, then verify again",
        )
    generation = newest_generation([check.app_id], check.app_id)
    newer = newest_generation(snapshot.applied, check.app_id, snapshot.build) > generation
    if newer or snapshot.build != build_of(check.app_id):
        # Mode and columns are known for the newest version only.
        raise Unavailable(
            f"the target of {check.table} was recreated since version {check.target_version}",
            hint="verify again",
        )
    for commit in target.commits(check.target_version):
        number = commit.numbers.get(check.app_id)
        if number is not None:
            if number != check.number:
                raise Unavailable(
                    f"version {check.target_version} of {check.table} has applied manifest"
                    f" {number} instead of {check.number}",
                    hint="it was recreated: verify again",
                )
            break
        if commit.commit_metadata is not None and commit.commit_metadata.app_id == check.app_id:
            raise Unavailable(
                f"a merge of {check.table} is under way, or was killed",
                hint="merge again, then verify again",
            )
    if snapshot.mode is Mode.APPEND:
        raise Misconfigured(
            f"{check.table} is kept as a log of changes, which has no rows to compare",
            hint="verify a table that is kept as it is now: `tideline rebuild` switches",
        )
    return snapshot.mode, TargetColumns.parse(snapshot.properties.get(COLUMNS_PROPERTY))
