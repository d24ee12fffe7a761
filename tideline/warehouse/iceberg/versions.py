"""The versions of an Iceberg table that are still needed, by its metadata. Pure.

Every commit writes all of the metadata, and every reader reads it, with each snapshot that is kept:
1.2 KB for a merge. A table that is merged every few seconds therefore keeps the newest snapshots
and, of older ones, the last of each hour. Files stay as long as a reader may need them: a file that
is in a snapshot that was dropped is in one of the snapshots around it, too, which is kept for
longer, or it is not older than an hour before the snapshot, and files in no snapshot are removed by
their age (`SLACK_HOURS`).
"""

from __future__ import annotations

from tideline.warehouse.iceberg.metadata import APPLIED_KEY, COMMIT_KEY, IcebergMetadata

_HOUR_MS = 3_600_000
SLACK_HOURS = 2.0
"""Files in no snapshot are kept for so long beyond the retention: the hour of which only the last
snapshot is kept, and as much for a commit that writes for long."""


def surplus(metadata: IcebergMetadata, most: int) -> list[int]:
    """Return the ids of snapshots to drop where the table has more than ``most``, and a tenth:
    those behind the newest ``most`` up to our last commit, but for the last of each hour.

    Only those that lead to the present one without a gap count: what is behind a gap was left there
    earlier, and what a rollback has left behind has an age, but no place in that line. None are
    dropped where the present snapshot does not say all that the table has applied.
    """
    if len(metadata.snapshots) <= most + most // 10 or metadata.current is None:
        return []
    if metadata.current.numbers(APPLIED_KEY) != metadata.applied():
        return []
    line = list(metadata.ancestors())
    ours = next((at for at, one in enumerate(line) if COMMIT_KEY in one.summary), len(line))
    older = line[ours + most :]
    if len(older) <= most // 10:
        return []
    referenced = metadata.referenced
    dropped, hour, needed = [], None, False
    for one in older:
        now = one.at_ms // _HOUR_MS
        if now != hour or needed or one.id in referenced:
            # Another program's commit says only with those before it what the table has applied.
            needed = APPLIED_KEY not in one.summary
        else:
            dropped.append(one.id)
        hour = now
    return dropped


def needed_since(metadata: IcebergMetadata, cutoff_ms: int) -> int:
    """Return the time (ms since 1970 UTC) of the oldest snapshot that a reader may have begun on at
    or after ``cutoff_ms``: the one that was the present one then, however old it is, or one that a
    rollback went to since."""
    times = {one.id: one.at_ms for one in metadata.snapshots.values()}
    found = max((at for at in times.values() if at <= cutoff_ms), default=cutoff_ms)
    log = metadata.present_ones
    before = [at for at, _ in log if at <= cutoff_ms]
    since = max(before, default=cutoff_ms)
    return min([found, *(times[one] for at, one in log if at >= since and one in times)])
