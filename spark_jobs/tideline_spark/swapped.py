"""What a live table still lacks when the rows of the rebuilt one have taken its place.

What is swapped is swapped: whatever goes wrong here is a warning. A run that is killed before it
leaves a table that the next merge describes, and of whose deletion vectors `tideline status` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tideline_spark.describe import carry_over
from tideline_spark.failures import unexpected
from tideline_spark.formats.base import Target
from tideline_spark.formats.state import TableWords


def settle(live: Target, table: str, words: Sequence[TableWords]) -> tuple[str, ...]:
    """Have the table say of itself what the rebuilt one does, and let readers in that do not know
    deletion vectors, if it has none now; warnings.

    ``words``: what the live table and the rebuilt one said before the swap.
    """
    return (
        *_tried(lambda: carry_over(live, *words), f"describing {table}", "merge"),
        *_tried(live.admit_readers, f"dropping reader features of {table}", "rebuild"),
    )


def _tried(do: Callable[[], object], doing: str, again: str) -> Iterator[str]:
    try:
        do()
    except Exception as error:  # noqa: BLE001
        yield f"{unexpected(error, doing).message}; the next {again} of the table does it"
