"""Measures how soon a plan's changes were queryable, after the commit that made them so.

Neither clock is this process's: the source's commit times are in the parts, and the table's log
file has its write time. So every measurement of a plan gives the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tideline.contract.part import DUMPED, OP, TS
from tideline.contract.plan import TablePlan
from tideline.contract.timeliness import Timeliness
from tideline_spark.parts import Times, by_schema, identity
from tideline_spark.schemas import column as col


def measure(
    session: SparkSession,
    store_url: str,
    table: TablePlan,
    times: Mapping[str, Times],
    queryable_us: int,
) -> Timeliness | None:
    """Return the figures of ``table``'s plan, whose rows became queryable at ``queryable_us``.

    ``times``: the counts of each part as read, by its `identity`. None where there is nothing to
    measure: no changes, or a table under rebuild, whose rows may have been queryable before. Runs a
    job only if a part has both late changes and others.
    """
    if table.create or not table.within_us or not times:
        return None
    deadline_us = queryable_us - table.within_us
    late = sum(one.changes for one in times.values() if one.newest_us < deadline_us)
    mixed = {name for name, one in times.items() if one.oldest_us < deadline_us <= one.newest_us}
    if mixed:
        some = tuple(part for part in table.parts if identity(part.key) in mixed)
        rest = msgspec.structs.replace(table, parts=some)
        for frame in by_schema(session, store_url, rest).values():
            changed = frame.where((col(OP) != DUMPED) & (F.unix_micros(col(TS)) < deadline_us))
            late += changed.count()
    return Timeliness(
        changes=sum(one.changes for one in times.values()),
        late=late,
        within_us=table.within_us,
        slowest_us=max(0, queryable_us - min(one.oldest_us for one in times.values())),
        queryable_us=queryable_us,
    )
