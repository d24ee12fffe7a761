"""Repeats in a table's properties the position that our last commit recorded.

A format removes old commits from a table's log once there are newer ones. A table that is
maintained but not merged into would then no longer record which manifest it has applied.
"""

from __future__ import annotations

from tideline.contract.plan import STANDING_PROPERTY
from tideline_spark.formats.base import Target
from tideline_spark.formats.state import TargetVersion

WEEK_US = 7 * 24 * 3600 * 1_000_000
"""Age up to which commits are left to the log, which keeps them for a month by default."""


def remember(table: Target, seen: TargetVersion, incarnation: str, *, now_us: int) -> None:
    """Set the property where our last commit of this ``incarnation`` is old at ``now_us`` and
    differs from it. Does nothing for a table whose log has no such commit."""
    for commit in seen.commits():
        stamp = commit.stamp
        if stamp is None or stamp.incarnation != incarnation:
            continue
        said = stamp.text()
        old = commit.at_us < now_us - WEEK_US
        if old and seen.properties.get(STANDING_PROPERTY) != said:
            table.set_property(STANDING_PROPERTY, said)
        return
