"""The table formats that the planner reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.warehouse.base import TableReader
from tideline.warehouse.delta.reader import open_delta

READERS: dict[str, Callable[[str, Mapping[str, str]], TableReader | None]] = {
    "delta": open_delta,
}
"""The function that opens a table of each format, from its url and `storage_options`."""


def open_reader(url: str) -> TableReader | None:
    """Return the newest version of the table at ``url``; None without one.

    Raises Unavailable when something is there that cannot be read.
    """
    return READERS[DEFAULT_FORMAT](url, storage_options(url))


def storage_options(url: str) -> Mapping[str, str]:
    """Return what a reader needs besides ``url`` to reach the warehouse.

    Nothing today: object stores take credentials and endpoint from the process's environment.
    Settings for them belong here, and nowhere else on the planner's side.
    """
    return {}
