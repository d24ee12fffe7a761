"""Makes the commit metadata of our commits, and its copy in table properties for a shortened log.

Changes by others stay recorded, commit after commit, until a full dump that began after they were
found is merged. In a table that keeps the past, which no dump proves, they stay until a rebuild.
"""

from __future__ import annotations

from collections.abc import Mapping

from tideline.contract.external_commits import UNHEALED_PROPERTY, SinceOurs, UnhealedCommits
from tideline.contract.plan import CommitMetadata, Plan, TablePlan
from tideline_spark import parts
from tideline_spark.formats.base import Target
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.modes import mode_of

_CHANGES_MAX = 20


def unhealed(snapshot: TargetSnapshot, since: SinceOurs) -> tuple[str, ...]:
    """Return the changes by others that nothing has repaired so far, the newest last."""
    return (*_earlier(snapshot, since).changes, *since.external)[-_CHANGES_MAX:]


def unhealed_at(snapshot: TargetSnapshot, since: SinceOurs, seq: int) -> int:
    """Return the sequence up to which everything was applied when the newest of `unhealed` was
    found, if it was found at ``seq``."""
    found_at = _earlier(snapshot, since).seq
    return max(found_at, seq) if since.external else found_at


def commit_metadata_of(
    plan: Plan, table: TablePlan, snapshot: TargetSnapshot, since: SinceOurs
) -> CommitMetadata:
    """Return the metadata of the commit that brings ``table`` from ``snapshot`` to its end."""
    before, changed = since.commit_metadata, unhealed(snapshot, since)
    found_at = unhealed_at(snapshot, since, table.from_seq)
    healed_at = None if table.mode.keeps_history else table.delete_before
    # Our last commit may have left some, where the log no longer holds it.
    pended = before.pending if before is not None else not table.create
    pending = parts.has_unchanged(table) or (pended and healed_at is None)
    if healed_at is not None and healed_at >= found_at:
        changed, found_at = (), 0
    return CommitMetadata(
        app_id=table.app_id,
        pipeline=plan.pipeline,
        incarnation=plan.incarnation,
        plan_id=plan.plan_id,
        from_manifest=table.from_manifest,
        to_manifest=table.to_manifest,
        seq=table.to_seq,
        complete_through_us=table.complete_through_us,
        unhealed=changed,
        unhealed_seq=found_at,
        pending=pending and mode_of(table).pends,
        read_version=None if table.create else snapshot.version,
        digest=table.to_digest,
    )


def note(
    target: Target,
    properties: Mapping[str, str],
    commit_metadata: CommitMetadata,
    concurrent_commits: tuple[str, ...],
) -> None:
    """Record in the table's ``properties`` others' changes: those of the committed
    ``commit_metadata``, and ``concurrent_commits``, which it could not know. Commits only where
    that is new."""
    found = UnhealedCommits(
        (*commit_metadata.unhealed, *concurrent_commits)[-_CHANGES_MAX:],
        commit_metadata.unhealed_seq,
    )
    if concurrent_commits:
        found = UnhealedCommits(found.changes, commit_metadata.seq)
    if not found.changes:
        found = UnhealedCommits()
    if UnhealedCommits.parse(properties.get(UNHEALED_PROPERTY)) == found:
        return
    target.set_property(UNHEALED_PROPERTY, found.text() if found.changes else None)


def _earlier(snapshot: TargetSnapshot, since: SinceOurs) -> UnhealedCommits:
    """Return our last commit's record, or the table's properties where the log has lost it."""
    if since.commit_metadata is not None:
        return UnhealedCommits(since.commit_metadata.unhealed, since.commit_metadata.unhealed_seq)
    return UnhealedCommits.parse(snapshot.properties.get(UNHEALED_PROPERTY))
