"""What a live table still lacks when the rows of the rebuilt one have taken its place.

What is swapped is swapped: whatever goes wrong here is a warning. A run that is killed before it
leaves a table that the next merge describes, and of whose deletion vectors `tideline status` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import SparkSession

from tideline_spark.describe import carry_over
from tideline_spark.failures import unexpected
from tideline_spark.formats.delta import DeltaTable
from tideline_spark.formats.delta_description import Words


def settle(
    session: SparkSession, live: DeltaTable, table: str, words: Sequence[Words]
) -> tuple[str, ...]:
    """Have the table say of itself what the rebuilt one does, and let readers in that do not know
    deletion vectors, if it has none now; warnings.

    ``words``: what the live table and the rebuilt one said before the swap.
    """
    return (
        *_tried(lambda: carry_over(session, live, *words), f"describing {table}", "merge"),
        *_tried(live.forget_vectors, f"dropping deletionVectors of {table}", "rebuild"),
    )


def _tried(do: Callable[[], object], doing: str, again: str) -> Iterator[str]:
    try:
        do()
    except Exception as error:  # noqa: BLE001
        yield f"{unexpected(error, doing).message}; the next {again} of the table does it"
