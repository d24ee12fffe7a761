"""Compares a target with a plan: owner, mode and applied position, and what a new one is to be."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.external_commits import SinceOurs
from tideline.contract.modes import Mode
from tideline.contract.moves import MOVED_PROPERTY
from tideline.contract.plan import CommitMetadata, TablePlan, newest_generation
from tideline.contract.printable import command
from tideline.contract.readers import features_of_column
from tideline.contract.target_properties import Owner, owner_of
from tideline_spark.formats.state import TargetSnapshot

_NOT_OURS = "remove or move it to have it built again, or name another warehouse.url"


def check_owner(
    properties: Mapping[str, str], owner: Owner, url: str, hint: str = _NOT_OURS
) -> None:
    """Raise Misconfigured where the table at ``url`` is another pipeline's, or of none."""
    if owner_of(properties) != owner:
        raise Misconfigured(f"the table at {url} is not this pipeline's {owner[-1]}", hint=hint)


def check_mode(table: TablePlan, snapshot: TargetSnapshot) -> None:
    """Raise Misconfigured where the plan has another mode, or would replace a kept history."""
    if not snapshot.exists:
        return
    if table.create and snapshot.mode.keeps_history:
        raise Misconfigured(
            f"the target of {table.table} is kept as {snapshot.mode.value}, and the plan would"
            " replace what it holds of the past",
            hint=f"run {command('rebuild', table.table)}: what it holds stays in its own log",
        )
    if snapshot.mode is table.mode:
        return
    raise Misconfigured(
        f"the target of {table.table} is kept as {snapshot.mode.value}, the plan is for"
        f" {table.mode.value}",
        hint=f"run {command('rebuild', table.table, '--mode', table.mode.value)} to switch it",
    )


def check_new(table: TablePlan) -> None:
    """Raise Misconfigured where a new target lacks a column of its layout, or its columns need a
    feature that a reader lacks. The planner checks the source's newest columns; a plan may end
    before the change that brought one, or took one away."""
    wanted = () if table.mode is Mode.APPEND else table.layout.columns
    missing = [name for name in wanted if name not in table.schema.column_names]
    if missing:
        raise Misconfigured(
            f"the target of {table.table} is to be {table.layout}, and at manifest"
            f" {table.to_manifest}, where the plan ends, there is no column {missing[0]!r}",
            hint="have more merged at once (merge.bytes_max, merge.parts_max), or make the"
            " table without that column and rebuild it later",
        )
    for column in table.schema.columns:
        needed = [f for f in features_of_column(column.name, column.type) if f in table.without]
        if needed:
            raise Misconfigured(
                f"column {column.name!r} of {table.table}, at manifest {table.to_manifest}, where"
                f" the plan ends, needs {needed[0].value}, which a reader in the settings lacks",
                hint="have more merged at once (merge.bytes_max, merge.parts_max), or leave that"
                " reader out of the table's readers (docs/LAYOUT.md)",
            )


def starts_here(table: TablePlan, snapshot: TargetSnapshot, applied: int | None) -> bool:
    """Return whether the target stands where the plan begins, and is fed at all."""
    if MOVED_PROPERTY in snapshot.properties:
        return False
    if snapshot.exists and snapshot.build != table.build:
        return False
    if newest_generation(snapshot.applied, table.app_id, table.build) > table.generation:
        return False
    if table.create:
        return applied is None and snapshot.exists == table.replace
    return applied == table.from_manifest


def astray(table: TablePlan, applied: int | None, since: SinceOurs) -> str | None:
    """Return why the target has not applied the plan's chain; None where it has, as far as its log
    and the plan show."""
    commit_metadata = since.commit_metadata
    known = {table.from_manifest: table.from_digest, table.to_manifest: table.to_digest}.get(
        applied or 0, ""
    )
    if (
        commit_metadata is None
        or not (commit_metadata.digest and known)
        or commit_metadata.to_manifest != applied
    ):
        return None
    if commit_metadata.digest == known:
        return None
    return f"the target has applied another manifest {applied} than the plan's"


def check_not_set_back(table: TablePlan, since: SinceOurs) -> None:
    """Raise CorruptData where a RESTORE undid applied changes that the plan does not rewrite."""
    if since.went_back and table.mode.keeps_history:
        raise CorruptData(
            f"the target of {table.table} was set back (RESTORE), and lacks what it kept since",
            hint="run "
            + command("rebuild", table.table, "--mode", table.mode.value, "--accept-differences"),
        )
    if since.went_back and (table.delete_before is None or table.delete_before < table.from_seq):
        raise CorruptData(
            f"the target of {table.table} was set back behind what is applied (RESTORE)",
            hint=f"run {command('dump', table.table)} and merge again",
        )


def rowless_commit_metadata(
    commit_metadata: CommitMetadata, table: TablePlan, changed: tuple[str, ...]
) -> CommitMetadata:
    """Return the metadata of a commit without rows, where others changed data since ours."""
    return replace(
        commit_metadata,
        to_manifest=table.from_manifest,
        seq=table.from_seq,
        digest=table.from_digest,
        unhealed=changed,
        unhealed_seq=table.from_seq,
        complete_through_us=None,
    )
