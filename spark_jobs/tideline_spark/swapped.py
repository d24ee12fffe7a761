"""Completes a live table after the rows of the rebuilt one have replaced its own.

The swap is already committed, so a failure here is only a warning. A run killed before this leaves
a table that the next merge describes, and whose deletion vectors `tideline status` reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tideline_spark.describe import carry_over
from tideline_spark.failures import unexpected
from tideline_spark.formats.base import Target
from tideline_spark.formats.state import TableWords


def settle(live: Target, table: str, words: Sequence[TableWords]) -> tuple[str, ...]:
    """Copy the rebuilt table's description, and admit readers without deletion vectors if the
    table has none now; return warnings.

    ``words``: the descriptions of the live and the rebuilt table before the swap.
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
