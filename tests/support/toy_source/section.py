"""The toy's own key of ``[source]``, and its url."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from tideline.settings.base import Effect, Seconds, Section


class ToySection(Section):
    """The key that only the toy has."""

    effect = Effect.RESTART

    turn_s: Seconds = 60.0
    """Toy: the time for which a session waits until it is its turn to write."""


def check_toy(url: str) -> None:
    """Any path will do."""


def path_of(url: str) -> Path:
    """The file that ``toy:///path`` names."""
    return Path(urlsplit(url).path)
