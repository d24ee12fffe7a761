"""The reaction of each target to changes of its source table's columns, from the settings."""

from __future__ import annotations

from tideline.contract.planning.stops import Policy
from tideline.contract.readers import lacking
from tideline.contract.schema import parse_table
from tideline.contract.steps import StepKind
from tideline.contract.table_layout import NO_LAYOUT
from tideline.contract.target_url import ICEBERG, table_format_of
from tideline.settings import Settings
from tideline.warehouse.state import TargetState

_OURS = (StepKind.ADD, StepKind.DROP, StepKind.RENAME, StepKind.WIDEN)
"""Kinds that a target can follow. For the others the worker itself blocks the table."""


def policy_of(settings: Settings, table: str, target: TargetState | None = None) -> Policy:
    """Return the policy of a table, with the limits of its ``target``, which has applied something
    (else none: its first plan makes it with the columns of the plan's end)."""
    chosen = settings.of_table(parse_table(table))
    reactions = {kind: getattr(chosen.on_change, kind.value) for kind in _OURS}
    standing = target if target is not None and target.applied is not None else None
    lacks = {}
    if standing is not None:
        partitioned = standing.layout.partitioned(standing.mode)
        lacks = lacking(chosen.readers, partitioned=partitioned)
    return Policy(
        stops_at=frozenset(kind for kind, how in reactions.items() if how == "park"),
        ignores=tuple(kind for kind, how in reactions.items() if how == "ignore"),
        drop_columns=chosen.dropped_columns == "drop",
        layout=NO_LAYOUT if standing is None else standing.layout,
        lacking={
            feature: tuple(readers)
            for feature, readers in lacks.items()
            if standing is not None and feature not in standing.features
        },
        mode=chosen.mode if standing is None else standing.mode,
        by_ids=standing is not None and table_format_of(standing.url) == ICEBERG,
    )
