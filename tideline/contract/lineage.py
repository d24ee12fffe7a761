"""Finds the source column of each column of a target, from the plan that wrote it."""

from __future__ import annotations

from tideline.contract.plan import PlannedChange, TablePlan
from tideline.contract.receipt import ColumnLineage
from tideline.contract.steps import ColumnStep, StepKind


def column_lineage(plan: TablePlan) -> tuple[ColumnLineage, ...]:
    """Return the columns of ``plan.schema``, in their order, with the steps of ``plan.changes``.

    A column that the target does not take over is not in the schema that is given. Values of
    defaults are left out: they are rows' values.
    """
    steps: dict[str, list[str]] = {}
    for change in plan.changes:
        before = steps
        steps = {
            name: list(columns)
            for name, columns in before.items()
            if name not in {step.was for step in change.steps if step.kind is StepKind.RENAME}
        }
        for step in change.steps:
            _take(steps, before, change, step)
    return tuple(
        ColumnLineage(column.name, column.type, steps=tuple(steps.get(column.name, ())))
        for column in plan.schema.columns
    )


def _take(
    steps: dict[str, list[str]],
    before: dict[str, list[str]],
    change: PlannedChange,
    step: ColumnStep,
) -> None:
    at = f"at {change.seq}"
    if step.kind is StepKind.RENAME:
        steps[step.column] = [*before.get(step.was, ()), f"renamed from {step.was} {at}"]
    elif step.kind is StepKind.ADD:
        filled = "" if step.default is None else ", old rows filled"
        steps[step.column] = [f"added {at}{filled}"]
    elif step.kind is StepKind.WIDEN:
        steps.setdefault(step.column, []).append(f"widened to {step.type} {at}")
    elif step.kind is StepKind.RETYPE:
        steps.setdefault(step.column, []).append(f"retyped to {step.type} {at}")
    elif step.kind is StepKind.DROP:
        steps.pop(step.column, None)
