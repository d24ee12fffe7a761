"""The table properties with a target's owner and its mode, as every writer sets them."""

from __future__ import annotations

from collections.abc import Mapping

from tideline.contract.modes import Mode

DEFAULT_FORMAT = "delta"
"""The table format of every warehouse, as settings and plans name none."""
MODE_PROPERTY = "tideline.mode"
BUILD_PROPERTY = "tideline.build"
_OWNER = ("tideline.pipeline", "tideline.incarnation", "tideline.table")

Owner = tuple[str, str, str]
"""A pipeline, its incarnation, and the source's table."""


def owner_properties(owner: Owner) -> dict[str, str]:
    """Return the properties of a table that is ``owner``'s."""
    return dict(zip(_OWNER, owner, strict=True))


def owner_of(properties: Mapping[str, str]) -> Owner:
    """Return the table's owner; empty texts for one that was not made by us."""
    pipeline, incarnation, table = (properties.get(name) or "" for name in _OWNER)
    return pipeline, incarnation, table


def lasting_properties(mode: Mode, build: int) -> dict[str, str]:
    """Return the properties that say how a target is kept, and which rebuild made it."""
    return {MODE_PROPERTY: mode.value, **({BUILD_PROPERTY: str(build)} if build else {})}


def mode_of_properties(properties: Mapping[str, str]) -> Mode:
    """Return how the table is kept; those without the property were made before there were
    modes."""
    return Mode(properties.get(MODE_PROPERTY) or Mode.CURRENT)


def build_of_properties(properties: Mapping[str, str]) -> int:
    """Return which rebuild made the table; 0 for none."""
    return int(properties.get(BUILD_PROPERTY) or 0)
