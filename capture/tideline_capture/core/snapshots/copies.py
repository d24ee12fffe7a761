"""Finds the log position of the snapshot from which a table without a key is copied.

Such a table is read whole in one snapshot: none of its rows can be set against an event, so each
change must be either in the copy or behind it in the log, never both and never neither. The window
from L to H is opened and closed around the taking of the snapshot alone. The rows are read later,
from that snapshot, and add up with the log's changes in whatever order, since equal rows are only
counted.

On PostgreSQL the log's order is not that in which transactions become visible. So the snapshot
itself says of each transaction in the window whether it shows it. On MySQL and MariaDB the orders
are one; *probes*, watermarks that are written without a pause while the snapshot is taken, show
where it lies between L and H. If the table changed between the last probe that it shows and the
first one that it does not, the snapshot is taken again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tideline.contract.part import SEQ, TX
from tideline_capture.core.chunks import Chunk
from tideline_capture.core.events import Int64Array, Rows
from tideline_capture.core.visibility import invisible

SEEN_MAX = 100
"""Limit of the ranges of changes which a snapshot shows, though it does not show all before them;
with more of them it is taken again."""

_NONE: Int64Array = np.empty(0, np.int64)
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """A watermark in a window: in the log behind ``seq``, the ``number``-th of its ``writer``."""

    writer: str
    number: int
    seq: int


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """A copy's place in the log: the table's state at ``seq``, and changes after it that it shows.

    Those have sequences in ``seen``, ranges from first to last.
    """

    seq: int
    seen: Ranges = ()


def snapshot_position(
    events: Sequence[Rows], chunk: Chunk, *, low_seq: int, high_seq: int, probes: Sequence[Probe]
) -> SnapshotPosition | None:
    """Find where the snapshot of ``chunk`` stands; None where that is not known: it is taken again.

    ``events`` are the table's rows between L (``low_seq`` was the last sequence before it) and H
    (``high_seq``), with ``_tl_seq`` and ``_tl_tx``.
    """
    seqs = _column(events, SEQ)
    if chunk.probes is not None:
        return _between_probes(seqs, chunk.probes, low_seq, high_seq, probes)
    transactions = _column(events, TX)
    hidden = invisible(np.unique(transactions), chunk.snapshot)
    shown = ~np.isin(transactions, hidden)
    # All that is shown up to the first change that is not: the state there. The rest by name.
    unseen = np.flatnonzero(~shown)
    lead = len(seqs) if not len(unseen) else int(unseen[0])
    seq = int(seqs[lead - 1]) if lead else low_seq
    seen = _ranges(seqs[lead:][shown[lead:]])
    return None if len(seen) > SEEN_MAX else SnapshotPosition(seq, seen)


def _between_probes(
    seqs: Int64Array,
    shown: Sequence[tuple[str, int]],
    low_seq: int,
    high_seq: int,
    probes: Sequence[Probe],
) -> SnapshotPosition | None:
    last = dict(shown)
    before = [one.seq for one in probes if one.number <= last.get(one.writer, 0)]
    behind = [one.seq for one in probes if one.number > last.get(one.writer, 0)]
    begin, end = max([low_seq, *before]), min([high_seq, *behind])
    between = (seqs > begin) & (seqs <= end)
    return None if begin > end or between.any() else SnapshotPosition(begin)


def _column(events: Sequence[Rows], name: str) -> Int64Array:
    found = [rows.batch.column(name).to_numpy(zero_copy_only=False) for rows in events]
    return np.concatenate(found) if found else _NONE


def _ranges(seqs: Int64Array) -> Ranges:
    """Return ascending numbers as ranges of consecutive ones."""
    if not len(seqs):
        return ()
    breaks = np.flatnonzero(np.diff(seqs) > 1)
    firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(seqs) - 1)
    return tuple((int(seqs[i]), int(seqs[j])) for i, j in zip(firsts, lasts, strict=True))
