"""The table formats that the planner reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.settings.object_storage import ObjectStorage
from tideline.warehouse.access import storage_options, trust
from tideline.warehouse.base import TableReader
from tideline.warehouse.delta.log import LOG_FOLDER
from tideline.warehouse.delta.reader import open_delta

READERS: dict[str, Callable[[str, Mapping[str, str]], TableReader | None]] = {
    "delta": open_delta,
}
"""The function that opens a table of each format, from its url and `storage_options`."""
LOG_FOLDERS = (LOG_FOLDER,)
"""The folders, within a table's own, that hold the logs of the formats."""


def open_reader(url: str, place: ObjectStorage) -> TableReader | None:
    """Return the newest version of the table at ``url`` in the warehouse ``place``; None without
    one.

    Raises Unavailable when something is there that cannot be read.
    """
    trust(place)
    return READERS[DEFAULT_FORMAT](url, storage_options(place))
