"""Checks that the store still has the manifests that a plan was made from.

A plan can outlive a restore of its store, in a running job or in a queue. The chain then has other
manifests under the plan's numbers.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from tideline.contract import layout
from tideline.contract.manifest import digest
from tideline.contract.plan import Plan
from tideline_spark.files import find_document


class PlannedManifests:
    """The manifests of one plan's store; each is read once. Used by many threads."""

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark = spark
        self._plan = plan
        self._known: dict[int, str] = {}

    def lost(self, number: int, known_digest: str) -> str | None:
        """Return why a plan up to manifest ``number`` must not run; None where it may, or where
        ``known_digest`` is "" because the planner named none. Raises Unavailable."""
        if not known_digest or self._digest(number) == known_digest:
            return None
        return (
            f"it was made from another manifest {number} than the store has: the store was restored"
            " from a backup since"
        )

    def _digest(self, number: int) -> str:
        if number not in self._known:
            key = layout.manifest_key(self._plan.pipeline, number)
            url = layout.object_url(self._plan.store_url, key)
            found = find_document(self._spark, url)
            self._known[number] = "" if found is None else digest(found)
        return self._known[number]
