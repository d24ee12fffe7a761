"""Has a table's properties repeat what our last commit says of where it stands.

A format removes old commits from a table's log once newer ones are there. A table that nothing is
merged into, and that is maintained, would no longer tell which manifest it has applied.
"""

from __future__ import annotations

import time

from tideline.contract.plan import STANDING_PROPERTY
from tideline_spark.formats.base import Target
from tideline_spark.formats.state import TargetVersion

WEEK_US = 7 * 24 * 3600 * 1_000_000
"""Commits younger than this are left to the log, which has them for a month by default."""


def remember(table: Target, seen: TargetVersion, incarnation: str) -> None:
    """Set the property, where our last commit of this ``incarnation`` is old and it says something
    else. A table whose log has none is left."""
    for commit in seen.commits():
        stamp = commit.stamp
        if stamp is None or stamp.incarnation != incarnation:
            continue
        said = stamp.text()
        old = commit.at_us < time.time_ns() // 1_000 - WEEK_US
        if old and seen.properties.get(STANDING_PROPERTY) != said:
            table.set_property(STANDING_PROPERTY, said)
        return
