"""Checks what the settings ask of a target that is to be made: its layout, and who reads it."""

from __future__ import annotations

from tideline.contract.layout_rules import layout_problem
from tideline.contract.modes import Mode
from tideline.contract.readers import Feature, features_of_column, lacking, unread
from tideline.contract.schema import TableSchema
from tideline.contract.target_url import table_format_of
from tideline.settings.tables import TableSettings
from tideline.warehouse.state import TargetState

_ONCE_CLUSTERED = (
    "a table that is or was clustered cannot be partitioned: remove the warehouse table's"
    " directory to have it made again, or let cluster_by stand"
)


def limited(wanted: TableSettings, target: TargetState) -> bool:
    """Return whether there is anything for `unmakeable` to check."""
    return bool(wanted.layout or wanted.readers or target.clustered)


def unmakeable(
    schema: TableSchema, wanted: TableSettings, mode: Mode, target: TargetState
) -> str | None:
    """Return why no target of ``schema`` can be made by the settings ``wanted``, in ``mode``, in
    the place of ``target``; None if one can."""
    problem = layout_problem(wanted.layout, schema, mode, table_format_of(target.url))
    if problem is not None:
        return problem
    partitioned = wanted.layout.partitioned(mode)
    if partitioned and target.clustered:
        return _ONCE_CLUSTERED
    without = lacking(wanted.readers, partitioned=partitioned)
    for column in schema.columns:
        for feature in features_of_column(column.name, column.type):
            if feature in without:
                return (
                    f"column {column.name!r} needs a feature: {unread(feature, without[feature])};"
                    " leave these out of its readers, or keep the column out of what they read"
                )
    return None


def unread_by(readers: tuple[str, ...], target: TargetState) -> dict[str, tuple[str, ...]]:
    """Return by reader the features of ``target`` that it cannot read."""
    found: dict[str, tuple[str, ...]] = {}
    partitioned = target.layout.partitioned(target.mode)
    for feature, who in lacking(readers, target.features, partitioned=partitioned).items():
        for name in who:
            found[name] = (*found.get(name, ()), Feature(feature).value)
    return found
