"""The reaction of each target to changes of its source table's columns, from the settings."""

from __future__ import annotations

from tideline.contract.planning.stops import Policy
from tideline.contract.schema import parse_table
from tideline.contract.steps import StepKind
from tideline.settings import Settings

_OURS = (StepKind.ADD, StepKind.DROP, StepKind.RENAME, StepKind.WIDEN)
"""Kinds that a target can follow. For the others the worker itself blocks the table."""


def policy_of(settings: Settings, table: str) -> Policy:
    chosen = settings.of_table(parse_table(table))
    reactions = {kind: getattr(chosen.on_change, kind.value) for kind in _OURS}
    return Policy(
        stops_at=frozenset(kind for kind, how in reactions.items() if how == "park"),
        ignores=tuple(kind for kind, how in reactions.items() if how == "ignore"),
        drop_columns=chosen.dropped_columns == "drop",
    )
