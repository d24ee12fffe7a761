"""Goes through Scala's sequences, which Py4J shows as objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def scala_items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a Scala sequence, in order."""
    for number in range(sequence.size()):
        yield sequence.apply(number)
